// Kernels split their work into blocks, warps and tiles. Compares the CUDA device with the CPU for sizes just
// below, at and above each edge, primes, and empty tensors.
#include "bonsai/framework/ops/ops.h"
#include "bonsai/tests/cuda/device.h"

namespace bonsai::test {
namespace {

constexpr int64_t kWidths[] = {1, 2, 31, 32, 33, 127, 128, 129, 255, 256, 257, 1023, 1024, 1025, 1031};

Tensor ids(const Shape& shape, int64_t limit) {
  std::vector<double> values;
  for (int64_t i = 0; i < shape.elements(); ++i) values.push_back(static_cast<double>(i * 7919 % limit));
  return tensor(shape, values, DType::i32);
}

std::string at(const char* op, DType dtype, std::initializer_list<int64_t> sizes) {
  return std::string(op) + " " + name_of(dtype) + Shape(sizes).str();
}

TEST(CudaEdges, RowsOfEveryWidth) {
  for (const auto& [dtype, tolerance] : kTypes)
    for (const int64_t rows : {0, 1, 3})
      for (const int64_t n : kWidths) {
        const Tensor x = random_tensor({rows, n}, dtype), w = random_tensor({n}, dtype, 2),
            b = random_tensor({n}, dtype, 3);
        const auto same =
            [&, t = tolerance, d = dtype](const char* op, const Call& call, const std::vector<Tensor>& in) {
          expect_same_on_cuda(at(op, d, {rows, n}), call, in, t);
        };
        same("softmax", [](const auto& in) { return softmax(in[0]); }, {x});
        same("log_softmax", [](const auto& in) { return log_softmax(in[0]); }, {x});
        // A norm of one or two elements is computed from a difference of nearly equal numbers.
        if (n > 2) {
          same("layer_norm", [](const auto& in) { return layer_norm(in[0], in[1], in[2], 1e-5); }, {x, w, b});
          same("rms_norm", [](const auto& in) { return rms_norm(in[0], in[1], 1e-5); }, {x, w});
        }
        same("cross_entropy",
             [](const auto& in) { return cross_entropy(in[0], in[1],
                 {.reduction = CrossEntropyOptions::sum}); }, {x, ids({rows}, n)});
        same("sum", [](const auto& in) { return sum(in[0], -1); }, {x});
        same("max", [](const auto& in) { return max(in[0], -1); }, {x});
        same("gelu_tanh", [](const auto& in) { return gelu_tanh(in[0]); }, {x});
        same("mul", [](const auto& in) { return mul(in[0], in[1]); }, {x, w});
      }
}

// B51: squares overflow from 1e19 on in f32, and from 1e154 on in f64; below 1e-23 and 1e-162 they are 0.
TEST(CudaEdges, NormsOfHugeAndTinyRows) {
  for (const auto& [dtype, tolerance] : kTypes)
    for (const int64_t n : {4, 1000, 1026})
      for (const double s : dtype == DType::f32
           ? std::vector{1e-42, 1e-25, 1e19, 3e38} : std::vector{1e-200, 1e200}) {
        std::vector<double> values, signs;
        for (int64_t i = 0; i < n; ++i) signs.push_back(i % 2 ? -1 : 1), values.push_back(signs.back() * s);
        const Tensor x = tensor({1, n}, values, dtype), one = full({n}, 1, dtype);
        const Call rms = [](const auto& in) { return rms_norm(in[0], in[1], 0); };
        const Call layer = [](const auto& in) { return layer_norm(in[0], in[1], {}, 0); };
        for (const Call& norm : {rms, layer}) {
          expect_values(on_cuda(norm)({x, one}), signs, tolerance);
          if (s > 1e-40)
            expect_same_on_cuda(at("a norm", dtype, {n}), norm, {x, random_tensor({n}, dtype, 2)}, tolerance);
        }
      }
}

// The norm of gradients whose squares overflow or underflow in f32.
TEST(CudaEdges, TheNormOfHugeAndTinyGradients) {
  for (const Device device : {Device{}, kCuda})
    for (const double g : {1e-30, 1.0, 1e20, 3e38}) {
      const Tensor gradients = full({10'000}, g).to(device);
      Tensor state = full({sizeof(kernel::StepState) / sizeof(int32_t)}, 0, DType::i32).to(device);
      auto* const on_device = static_cast<kernel::StepState*>(state.mutable_data());
      kernels(device, DType::f32).begin_update({.learning_rate = 1}, on_device);
      kernels(device, DType::f32).gradient_norm(view(gradients), 1, on_device);
      kernel::StepState got;
      const Tensor host = state.to(Device{});
      std::memcpy(&got, host.data(), sizeof got);
      EXPECT_NEAR(got.gradient_norm / g, 100, 1e-4) << name_of(device) << " " << g;
      EXPECT_NEAR(got.factor, g < 1 ? 1 : 0.01 / g, 1e-5 * got.factor) << name_of(device) << " " << g;
      EXPECT_EQ(got.finite, 1);
    }
}

// The sum of all squares; the terms of a plain sum would nearly cancel, but their rounding errors would not.
const Call kSquares = [](const std::vector<Tensor>& in) { return sum(mul(in[0], in[0])); };

// Sums over rows: gradients of a bias and of a norm's gain, and a sum over an axis.
TEST(CudaEdges, ColumnsOfEveryHeight) {
  for (const auto& [dtype, tolerance] : kTypes)
    for (const int64_t rows : {0, 1, 31, 33, 63, 64, 65, 127, 129, 257, 1031}) {
      const Tensor x = random_tensor({rows, 37}, dtype), w = random_tensor({37}, dtype, 2),
          b = random_tensor({37}, dtype, 3);
      const Tensor m = random_tensor({29, 37}, dtype, 4), c = random_tensor({29}, dtype, 5);
      const auto same =
          [&, t = tolerance, d = dtype](const char* op, const Call& call, const std::vector<Tensor>& in) {
        expect_same_on_cuda(at(op, d, {rows, 37}), call, in, t);
      };
      same("sum", [](const auto& in) { return sum(in[0], 0); }, {x});
      same("sum of squares", kSquares, {x});
      same("add", [](const auto& in) { return add(in[0], in[1]); }, {x, w});
      same("layer_norm", [](const auto& in) { return layer_norm(in[0], in[1], in[2], 1e-5); }, {x, w, b});
      same("rms_norm", [](const auto& in) { return rms_norm(in[0], in[1], 1e-5); }, {x, w});
      same("linear", [](const auto& in) { return linear(in[0], in[1], in[2]); }, {x, m, c});
      same("embedding", [](const auto& in) { return embedding(in[0], in[1]); }, {m, ids({rows}, 29)});
    }
  const Tensor big = random_tensor({100'003}, DType::f32);
  expect_same_on_cuda("sum of 100,003 squares", kSquares, {big}, 1e-5);
}

TEST(CudaEdges, ProductsOfEverySize) {
  const int64_t sizes[] = {0, 1, 2, 5, 31, 32, 33, 67};
  for (const auto& [dtype, tolerance] : kTypes)
    for (const int64_t m : sizes)
      for (const int64_t n : sizes)
        for (const int64_t k : {0, 1, 33}) {
          const Tensor x = random_tensor({m, k}, dtype), w = random_tensor({n, k}, dtype, 2),
              b = random_tensor({n}, dtype, 3);
          expect_same_on_cuda(at("linear", dtype, {m, n, k}),
                              [](const auto& in) { return linear(in[0], in[1], in[2]); }, {x, w, b},
                              tolerance);
        }
}

// cuBLASLt may rely on no more than the alignment of these operands; a slice may be aligned to one element
// only.
TEST(CudaEdges, ProductsOfSlices) {
  constexpr int64_t k = 5, m = 3, n = 7;
  for (const auto& [dtype, tolerance] : kTypes)
    for (const int64_t i : {0, 1, 2, 4})
      for (const int64_t j : {0, 1, 2, 4})
        expect_same_on_cuda(at("linear of slices from rows", dtype, {i, j}),
                            [=](const auto& in) {
                              return linear(slice(in[0], 0, i, i + m), slice(in[1], 0, j, j + n), in[2]);
                            },
                            {random_tensor({m + 4, k}, dtype), random_tensor({n + 4, k}, dtype, 2),
                             random_tensor({n}, dtype, 3)},
                            tolerance);
}

// All four transpositions, and leading axes that broadcast: separate products, or products summed into one
// result.
TEST(CudaEdges, ProductsInBatches) {
  struct Case {
    Shape a, b;
  };
  for (const auto& [dtype, tolerance] : kTypes)
    for (const auto& [a, b] : {Case{{3, 5, 7}, {3, 7, 4}}, Case{{2, 3, 5, 7}, {3, 7, 4}},
                               Case{{2, 1, 5, 7}, {3, 7, 4}},
                               Case{{5, 7}, {2, 3, 7, 4}}, Case{{2, 1, 3, 5, 7}, {4, 1, 7, 4}},
                               Case{{0, 5, 7}, {7, 4}}})
      for (const bool ta : {false, true})
        for (const bool tb : {false, true}) {
          Shape x = a, y = b;
          if (ta) std::swap(x[-1], x[-2]);
          if (tb) std::swap(y[-1], y[-2]);
          expect_same_on_cuda("matmul " + x.str() + y.str(),
                              [=](const auto& in) { return matmul(in[0], in[1], ta, tb); },
                              {random_tensor(x, dtype), random_tensor(y, dtype, 2)}, tolerance);
        }
}

TEST(CudaEdges, AttentionOfEverySize) {
  const auto attend = [](const AttentionOptions& o) {
    return [o](const std::vector<Tensor>& in) { return scaled_dot_product_attention(in[0], in[1], in[2],
                                                                                    o); };
  };
  for (const auto& [dtype, tolerance] : kTypes)
    for (const int64_t t : {1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 67})
      for (const int64_t d : {1, 16, 33, 64}) {
        // The tiles are the same as in f32, but take four times as long.
        if (t > 33 && d > 33 && dtype == DType::f64) continue;
        const std::vector<Tensor> in =
            {random_tensor({1, 2, t, d}, dtype), random_tensor({1, 1, t, d}, dtype, 2),
                                        random_tensor({1, 1, t, d}, dtype, 3)};
        AttentionOptions causal;
        causal.mask.causal = true;
        expect_same_on_cuda(at("causal attention", dtype, {t, d}), attend(causal), in, tolerance);
      }
  for (const auto& [dtype, tolerance] : kTypes)
    for (const int64_t d : {65, 127, 128, 129, 257}) {
      const std::vector<Tensor> in =
          {random_tensor({1, 1, 19, d}, dtype), random_tensor({1, 1, 35, d}, dtype, 2),
                                      random_tensor({1, 1, 35, d}, dtype, 3)};
      expect_same_on_cuda(at("attention", dtype, {19, 35, d}), attend({}), in, tolerance);
    }
}

// If a probability is 1 - e, the gradient is about e; computed as 1 - p in f32 it would lose its digits.
TEST(CudaEdges, TheGradientOfACertainTargetKeepsItsDigits) {
  for (const auto& [dtype, tolerance] : {std::pair{DType::f32, 1e-5}, std::pair{DType::f64, 1e-13}})
    for (const double gap : {10.0, 20.0, 60.0}) {
      const Tensor logits = tensor({1, 2}, {-gap, 0}, dtype);
      const double e = std::exp(-gap) / (1 + std::exp(-gap));
      const auto expect_pair =
          [&, t = tolerance](const char* op, double right, const Call& call, const Tensor& dy) {
        const std::vector<double> got = differentiate(on_cuda(call), {logits}, dy).gradients[0].values();
        EXPECT_NEAR(got[0] / right, 1, t) << op << " " << gap;
        EXPECT_NEAR(got[1] / -right, 1, t) << op << " " << gap;
      };
      const Tensor target = tensor({1}, {1}, DType::i32).to(kCuda);
      expect_pair("cross_entropy", e, [&](const auto& in) { return cross_entropy(in[0], target); },
                  tensor({}, {1}, dtype));
      expect_pair("log_softmax", e, [](const auto& in) { return log_softmax(in[0]); },
                  tensor({1, 2}, {0, -1}, dtype));
      expect_pair("softmax", e * (1 - e), [](const auto& in) { return softmax(in[0]); },
                  tensor({1, 2}, {1, 0}, dtype));
    }
}

// Dropout draws the same numbers on both devices.
TEST(CudaEdges, DropoutDropsTheSameElements) {
  for (const int64_t n : {1, 3, 4, 5, 1023, 1025}) {
    const Tensor x = random_tensor({n}, DType::f32);
    const Call drop =
        [](const std::vector<Tensor>& in) { return dropout(in[0], 0.3, random_key(5, "dropout")); };
    EXPECT_TRUE(same_bits(on_cuda(drop)({x}), drop({x}))) << n;
  }
}

TEST(CudaEdges, AnIdOutOfRangeIsNamedWhenAValueIsRead) {
  const Tensor table = random_tensor({5, 3}, DType::f32).to(kCuda);
  const Tensor y = embedding(table, tensor({4}, {0, 4, 7, 1}, DType::i32).to(kCuda));
  EXPECT_EQ(error_of([&] { y.values(); }), "[embedding] id 7 at position 2 is not in [0, 5)");
  EXPECT_EQ(error_of([&] { table.values(); }), "no error");
  const Tensor loss = cross_entropy(table, tensor({5}, {0, 1, 2, -3, 0}, DType::i32).to(kCuda));
  EXPECT_EQ(error_of([&] { loss.item(); }), "[cross_entropy] id -3 at position 3 is not in [0, 3)");
}

TEST(CudaEdges, CopiesOfEverySizeComeBackWhole) {
  for (const int64_t n : {0, 1, 1023, 1024, 1025, 262'144, 262'145, 600'000}) {
    const Tensor x = random_tensor({n}, DType::f32);
    EXPECT_TRUE(same_bits(x.to(kCuda).to(Device{}), x)) << n;
    EXPECT_TRUE(same_bits(x.to(kCuda).copy().to(Device{}), x)) << n;
  }
}

}  // namespace
}  // namespace bonsai::test
