// Ops, layers and attention at the limits of a type's range: large means, constant rows, large scores.
#include "bonsai/framework/ops/ops.h"
#include "bonsai/layers/attention/multi_head.h"
#include "bonsai/layers/norm/layer_norm.h"
#include "bonsai/tests/support.h"

namespace bonsai::test {
namespace {

constexpr double kInf = INFINITY;

Tensor row(const std::vector<double>& v, DType dtype) {
  return tensor({1, static_cast<int64_t>(v.size())}, v, dtype);
}

// B04: a variance computed as the mean of squares minus the square of the mean would be negative here.
TEST(LayerNorm, ALargeMeanCostsNoDigits) {
  const std::vector<double> right = {-1.3416354, -0.4472118, 0.4472118, 1.3416354};
  for (const DType dtype : {DType::f32, DType::f64}) {
    Module root({.dtype = dtype});
    LayerNorm norm{&root, "norm", {.width = 4}};
    Context context;
    const auto of = [&](double first) {
      const std::vector<double> x = {first, first + 1, first + 2, first + 3};
      return differentiate([&](const auto& in) { return norm(in[0], context); }, {row(x, dtype)},
                           row({1, 0, 0, 0}, dtype));
    };
    const Result far = of(40000), near = of(0);
    expect_values(far.y, right, 1e-6);
    expect_values(far.gradients[0], near.gradients[0].values(), 1e-5);
    expect_values(far.gradients[0], {0.2683303, -0.3577684, -0.0894434, 0.1788815}, 1e-5);
    norm.weight->zero_gradient();
    of(40000);
    expect_values(norm.weight->grad, {right[0], 0, 0, 0}, 1e-6);
  }
}

// A variance computed from squares of the differences to the first element would lose its digits here.
TEST(LayerNorm, AFirstElementFarFromTheOthersCostsNoDigits) {
  constexpr int64_t kWidth = 4096;
  std::vector<double> x(kWidth), weight(kWidth, 1);
  for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<double>(i));
  x[0] = 1024;
  double mean = 0, variance = 0;
  for (const double v : x) mean += v / kWidth;
  for (const double v : x) variance += (v - mean) * (v - mean) / kWidth;
  for (const auto& [dtype, tolerance] : {std::pair{DType::f64, 1e-13}, std::pair{DType::f32, 1e-6}}) {
#ifdef __SANITIZE_ADDRESS__
    // Under this sanitizer g++ does not vectorise the sums, and a sequential f32 sum of 4096 terms is less
    // accurate.
    if (dtype == DType::f32) continue;
#endif
    const Tensor y = layer_norm(row(x, dtype), tensor({kWidth}, weight, dtype), {}, 0);
    EXPECT_NEAR(y.values()[0] / ((x[0] - mean) / std::sqrt(variance)), 1, tolerance) << name_of(dtype);
  }
}

TEST(LayerNorm, AConstantRowGivesTheBiasAndFiniteGradients) {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const int64_t width : {256, 1})
      for (const double value : {1234.0, 1e-30, -3e30, 0.1}) {
        Module root({.dtype = dtype});
        LayerNorm norm{&root, "norm", {.width = width}};
        Context context;
        const Result r = differentiate([&](const auto& in) { return norm(in[0], context); },
                                       {full({2, width}, value, dtype)});
        expect_values(r.y, std::vector<double>(2 * width, 0.0));
        expect_values(norm.weight->grad, std::vector<double>(width, 0.0));
        for (const double g : r.gradients[0].values()) EXPECT_TRUE(std::isfinite(g)) << value;
      }
}

using Norm = std::function<Tensor(const Tensor& x, const Tensor& weight, double eps)>;
const std::pair<const char*, Norm> kNorms[] = {
    {"rms_norm", [](const Tensor& x, const Tensor& w, double eps) { return rms_norm(x, w, eps); }},
    {"layer_norm", [](const Tensor& x, const Tensor& w, double eps) { return layer_norm(x, w, {}, eps); }}};

// The norm of the row times `size`, and its gradients. That of x, which is inversely proportional to `size`,
// is multiplied by it.
std::vector<Tensor> norm_of(const Norm& norm, DType dtype, std::vector<double> of, double size, double eps) {
  const auto n = static_cast<int64_t>(of.size());
  for (double& x : of) x *= size;
  const Result r = differentiate([&](const auto& in) { return norm(in[0], in[1], eps); },
                                 {row(of, dtype), random_tensor({n}, dtype, 2)});
  std::vector<double> dx = r.gradients[0].values();
  for (double& d : dx) d *= size;
  return {r.y, row(dx, DType::f64), r.gradients[1]};
}

// B51: squares overflow from 1e19 on in f32, and from 1e154 on in f64; below 1e-23 and 1e-162 they are 0.
TEST(Norms, HugeAndTinyRowsAreNormalisedAsOthers) {
  const std::vector<double> f32 = {1e-42, 1e-38, 1e-25, 1e-18, 1e-10, 1, 1e10, 1e15, 1e18, 1e19, 1e25, 3e38};
  const std::vector<double> f64 = {1e-308, 1e-200, 1e-150, 1, 1e150, 1e200, 1e300, 1.7e308};
  for (const auto& [name, norm] : kNorms)
    for (const DType dtype : {DType::f32, DType::f64})
      for (const double s : dtype == DType::f32 ? f32 : f64) {
        SCOPED_TRACE(fmt::format("{} of {} times {:g}", name, name_of(dtype), s));
        const Tensor y = norm(row({s, -s, s, -s}, dtype), full({4}, 1, dtype), 0);
        expect_values(y, {1, -1, 1, -1}, 1e-6);
      }
}

TEST(Norms, HugeAndTinyRowsHaveTheGradientsOfOthers) {
  std::vector<double> wide, few = {0.5, -1, 0.25, 0.75, -0.5};
  for (int i = 0; i < 307; ++i) wide.push_back(std::sin(i * i));
  for (const auto& [name, norm] : kNorms)
    for (const auto& [dtype, tolerance] : kTypes)
      for (const double s : dtype == DType::f32 ? std::vector{1e-25, 1e-18, 1e19, 1e30, 3e37}
                                                : std::vector{1e-300, 1e-200, 1e160, 1e300})
        for (const auto& of : {few, wide}) {
          const auto right = norm_of(norm, DType::f64, of, 1, 0), got = norm_of(norm, dtype, of, s, 0);
          const char* const what[] = {"result", "gradient of x", "gradient of weight"};
          for (int i = 0; i < 3; ++i)
            EXPECT_LE(relative_error(got[i], right[i]), 2 * tolerance)
                << what[i] << ", " << name << " " << name_of(dtype) << " times " << s << ", " << of.size();
        }
}

// Internal scaling must not change the effect of eps, constant rows, NaN and infinity.
TEST(Norms, RowsOfOneSizeAndEpsAreTakenAsTheyAre) {
  for (const auto& [name, norm] : kNorms) {
    SCOPED_TRACE(name);
    const Tensor one = full({4}, 1);
    const double s = 1e-17, half = std::sqrt(0.5);
    expect_values(norm(row({s, -s, s, -s}, DType::f32), one, s * s), {half, -half, half, -half}, 1e-6);
    for (const double eps : {1e-5, 1e-35}) expect_values(norm(full({1, 4}, 0), one, eps), {0, 0, 0, 0});
    for (const double bad : {kInf, std::nan("")})
      EXPECT_TRUE(std::isnan(norm(row({1, bad, 1, 2}, DType::f32), one, 1e-5).values()[1]));
  }
  for (const double size : {1e-30, 1.0, 3e38})
    expect_values(layer_norm(full({1, 4}, size), full({4}, 1), {}, 1e-35), {0, 0, 0, 0});
}

struct Logits {
  std::vector<double> of;       // the logits (B05)
  std::vector<double> weights;  // the softmax of the logits
};
const Logits kLogits[] = {{{-431, 279, 427}, {0, 0, 1}},
                          {{1e8, 1e8}, {0.5, 0.5}},
                          {{1, 2, 3}, {0.09003057317038046, 0.24472847105479767, 0.66524095577482189}},
                          {{0, 0, -kInf}, {0.5, 0.5, 0}},
                          {{3e38, -3e38, 3e38}, {0.5, 0, 0.5}},
                          {{-kInf, -kInf}, {0, 0}}};

// The gradient of softmax: p (dy - sum p dy).
std::vector<double> sent_back(const std::vector<double>& p, const std::vector<double>& dy) {
  double mean = 0;
  for (size_t i = 0; i < p.size(); ++i) mean += p[i] * dy[i];
  std::vector<double> g;
  for (size_t i = 0; i < p.size(); ++i) g.push_back(p[i] * (dy[i] - mean));
  return g;
}

TEST(Softmax, LogitsOfAnySizeGiveTheRightWeightsAndGradients) {
  for (const auto& [dtype, tolerance] : kTypes)
    for (const Logits& c : kLogits) {
      const std::vector<double> dy = {1, -2, 4};
      const Result r = differentiate([](const auto& in) { return softmax(in[0]); }, {row(c.of, dtype)},
                                     row({dy.begin(), dy.begin() + c.of.size()}, dtype));
      expect_values(r.y, c.weights, tolerance);
      expect_values(r.gradients[0], sent_back(c.weights, dy), tolerance);
    }
}

// With a query of 1 the keys give the logits as scores; the bias adds -inf.
TEST(Attention, ScoresOfAnySizeGiveTheRightMixtureAndGradients) {
  const std::vector<double> values = {1, -2, 4};
  for (const auto& [dtype, tolerance] : kTypes)
    for (const Logits& c : kLogits)
      for (const bool fused : {true, false}) {
        const auto n = static_cast<int64_t>(c.of.size());
        std::vector<double> keys = c.of, bias(c.of.size(), 0);
        for (size_t i = 0; i < keys.size(); ++i)
          if (keys[i] == -kInf) keys[i] = 0, bias[i] = -kInf;
        Module root({.dtype = dtype});
        ScaledDotProductAttention attention{&root, "attention"};
        Context context;
        const auto column = [&](const std::vector<double>& v) {
          return tensor({1, 1, n, 1}, {v.begin(), v.begin() + n}, dtype);
        };
        const Tensor hidden = row(bias, dtype);
        const Result r = differentiate(
            [&](const auto& x) {
              return fused ? attention(x[0], x[1], x[2], context, hidden)
                           : attention.with_weights(x[0], x[1], x[2], context, hidden).output;
            },
            {full({1, 1, 1, 1}, 1, dtype), column(keys), column(values)}, full({1, 1, 1, 1}, 1, dtype));
        double mixture = 0, query = 0, terms = 1;
        const std::vector<double> dkeys = sent_back(c.weights, values);
        for (size_t i = 0; i < keys.size(); ++i) {
          mixture += c.weights[i] * values[i];
          query += dkeys[i] * keys[i], terms += std::abs(dkeys[i] * keys[i]);
        }
        expect_values(r.y, {mixture}, 4 * tolerance);
        expect_values(r.gradients[0], {query}, tolerance * terms);
        expect_values(r.gradients[1], dkeys, 4 * tolerance);
        expect_values(r.gradients[2], c.weights, tolerance);
      }
}

}  // namespace
}  // namespace bonsai::test
