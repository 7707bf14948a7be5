// Compares every row of the op table on the CUDA device with the CPU, and gradients with finite differences.
#include "bonsai/framework/checks/gradcheck.h"
#include "bonsai/framework/checks/op_cases.h"
#include "bonsai/framework/ops/ops.h"
#include "bonsai/tests/cuda/device.h"

namespace bonsai::test {
namespace {

TEST(CudaOps, EveryKernelIsThere) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    KernelTable cpu = kernels(Device{}, dtype), cuda = kernels(kCuda, dtype);
    std::vector<std::string> names, missing;
    cpu.for_each([&](const char* name, auto& kernel) {
      if (kernel.run) names.push_back(name);
    });
    cuda.for_each([&](const char* name, auto& kernel) {
      if (!kernel.run && std::find(names.begin(), names.end(), name) != names.end()) missing.push_back(name);
      EXPECT_EQ(kernel.device, kCuda);
    });
    EXPECT_TRUE(missing.empty()) << missing.size() << ", the first is " << missing.front();
  }
}

TEST(CudaOps, EveryResultAndGradientIsThatOfTheCpu) {
  for (const OpCase& row : op_cases())
    for (const auto& [dtype, tolerance] : kTypes)
      expect_same_on_cuda(row.name() + " " + name_of(dtype), row.call, make_inputs(row, dtype), tolerance);
}

TEST(CudaOps, EveryGradientAgreesWithDifferences) {
  for (const OpCase& row : op_cases()) {
    const GradcheckReport report = gradcheck(row.name(), on_cuda(row.call), make_inputs(row, DType::f64));
    EXPECT_TRUE(report.passed()) << report.text();
  }
}

// Calls every kernel with barriers and shared memory once, with small sizes, so that a race checker is fast
// enough.
TEST(CudaOps, KernelsWithSharedMemoryAgreeWithTheCpu) {
  const auto random =
      [](const Shape& shape, uint64_t seed) { return random_tensor(shape, DType::f32, seed); };
  const Tensor x = random({2, 1025}, 1), w = random({1025}, 2), q = random({1, 1, 19, 24}, 3),
      bias = random({1, 1, 19, 19}, 4);
  const Tensor ids = tensor({2}, {3, 1024}, DType::i32);
  const struct {
    const char* name;
    Call call;
    std::vector<Tensor> inputs;
  } cases[] = {
      {"layer_norm", [](const auto& in) { return layer_norm(in[0], in[1], in[2], 1e-5); }, {x, w, w}},
      {"rms_norm", [](const auto& in) { return rms_norm(in[0], in[1], 1e-5); }, {x, w}},
      {"softmax", [](const auto& in) { return softmax(in[0]); }, {x}},
      {"log_softmax", [](const auto& in) { return log_softmax(in[0]); }, {x}},
      {"cross_entropy", [](const auto& in) { return cross_entropy(in[0], in[1]); }, {x, ids}},
      {"max", [](const auto& in) { return max(in[0], -1); }, {x}},
      {"sum", [](const auto& in) { return sum(in[0], -1); }, {x}},
      {"sum of columns", [](const auto& in) { return sum(in[0], 0); }, {x}},
      {"attention",
          [](const auto& in) { return scaled_dot_product_attention(in[0], in[0], in[0], {.bias = in[1]}); },
          {q, bias}},
  };
  for (const auto& c : cases) expect_same_on_cuda(c.name, c.call, c.inputs, 1e-5);
}

// Two runs are bit-identical.
TEST(CudaOps, ASecondRunHasTheSameBits) {
  for (const OpCase& row : op_cases()) {
    const auto inputs = make_inputs(row, DType::f32);
    const Result once = differentiate(on_cuda(row.call), inputs),
        again = differentiate(on_cuda(row.call), inputs);
    EXPECT_TRUE(same_bits(once.y, again.y)) << row.name();
    for (size_t i = 0; i < once.gradients.size(); ++i)
      EXPECT_TRUE(same_bits(once.gradients[i], again.gradients[i])) << row.name() << " gradient " << i;
  }
}

}  // namespace
}  // namespace bonsai::test
