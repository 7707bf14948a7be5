// "The cat sat": attention computed by hand, with every number written out.
#include "bonsai/framework/ops/ops.h"
#include "bonsai/layers/attention/multi_head.h"
#include "bonsai/tests/support.h"

namespace bonsai::test {
namespace {

const std::vector<double> kX = {1, 0, 1, 0, 0, 1, 1, 0, 1, 1, 0, 1};
const std::vector<double> kWq = {1, 0, 1, 0, 0, 1, 1, 0, 1, 1, 0, 1, 1, 0, 0, 1};
const std::vector<double> kWk = {0, 1, 0, 1, 1, 0, 1, 1, 0, 0, 1, 0, 1, 1, 0, 0};
const std::vector<double> kWv = {0, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 1, 1, 0, 1, 0};

class WorkedExample : public testing::TestWithParam<DType> {
 protected:
  Tensor matrix(int64_t rows, const std::vector<double>& values) {
    return tensor({rows, static_cast<int64_t>(values.size()) / rows}, values, GetParam());
  }
  double tolerance() const { return GetParam() == DType::f64 ? 5e-8 : 1e-6; }  // digits written out

  Module root{{.dtype = GetParam()}};
  Context context;
};

TEST_P(WorkedExample, TheCatSat) {
  const Tensor x = matrix(3, kX);
  const Tensor q = matmul(x, matrix(4, kWq)), k = matmul(x, matrix(4, kWk)), v = matmul(x, matrix(4, kWv));
  expect_values(matmul(q, k, false, true), {3, 5, 9, 4, 4, 9, 4, 7, 10});

  ScaledDotProductAttention attention{&root, "attention"};
  const AttentionResult r = attention.with_weights(q, k, v, context);
  EXPECT_EQ(r.output.dtype(), GetParam());
  expect_values(slice(r.weights, 0, 0, 1), {0.0420101, 0.1141952, 0.8437947}, tolerance());
  expect_values(slice(r.output, 0, 0, 1), {1.8017847, 1.1141952, 1.7295995, 1.0420101}, tolerance());
  EXPECT_LE(relative_error(attention(q, k, v, context), r.output), GetParam() == DType::f64 ? 1e-14 : 1e-6);
}

TEST_P(WorkedExample, UnderACausalMask) {
  const Tensor q = matrix(3, {2, 1, 1, 1, 1, 2, 1, 1, 2, 1, 2, 2});
  const Tensor k = matrix(3, {0, 1, 1, 1, 1, 0, 2, 1, 2, 2, 1, 2});
  const Tensor v = matrix(3, {1, 0, 2, 1, 1, 2, 0, 1, 2, 2, 2, 2});
  const std::vector<double> weights = {1, 0, 0, 0.5, 0.5, 0, 0.0259087, 0.1161145, 0.8579768};
  const std::vector<double> outputs = {1, 0, 2, 1, 1, 1, 1, 1, 1.8579768, 1.9481827, 1.7677709, 1.8579768};

  ScaledDotProductAttention attention{&root, "attention", {.causal = true}};
  const AttentionResult r = attention.with_weights(q, k, v, context);
  expect_values(r.weights, weights, tolerance());
  expect_values(r.output, outputs, tolerance());
  expect_values(attention(q, k, v, context), outputs, tolerance());
  // The weight of a hidden key is exactly 0.
  const auto w = r.weights.values();
  EXPECT_EQ(w[1], 0);
  EXPECT_EQ(w[2], 0);
  EXPECT_EQ(w[5], 0);
}

INSTANTIATE_TEST_SUITE_P(Types, WorkedExample, testing::Values(DType::f32, DType::f64));

}  // namespace
}  // namespace bonsai::test
