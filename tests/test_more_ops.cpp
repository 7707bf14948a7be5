// Compares the values of ops that select, compare, index and contract with numbers computed by hand. The op
// table checks their gradients, but not that an op computes the intended function.
#include <cmath>

#include "bonsai/framework/ops/ops.h"
#include "bonsai/tests/support.h"

namespace bonsai::test {
namespace {

using Values = std::vector<double>;

constexpr double kNan = NAN, kInf = INFINITY;

Tensor row(const Values& values, DType dtype = DType::f64) {
  return tensor({static_cast<int64_t>(values.size())}, values, dtype);
}

void expect_near(const Tensor& x, const Values& wanted, double tolerance) {
  const Values values = x.values();
  ASSERT_EQ(values.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(values[i], wanted[i], tolerance) << "element " << i;
}

// Compares exactly; NaN equals NaN.
void expect_equal(const Tensor& x, const Values& wanted) {
  const Values values = x.values();
  ASSERT_EQ(values.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i)
    EXPECT_TRUE(values[i] == wanted[i] || (std::isnan(values[i]) && std::isnan(wanted[i])))
        << "element " << i << " is " << values[i] << ", not " << wanted[i];
}

TEST(MoreOps, ElementwiseValuesAndSpecialCases) {
  for (const auto& [dtype, tolerance] : kTypes) {
    const Tensor x = row({0.5, -2, 100, 0, kNan}, dtype);
    expect_equal(abs(x), {0.5, 2, 100, 0, kNan});
    expect_equal(sign(x), {1, -1, 1, 0, kNan});
    expect_near(sin(row({0.5, -2, 100}, dtype)),
                {0.479425538604203, -0.9092974268256817, -0.5063656411097588}, tolerance);
    expect_near(cos(row({0.5, -2, 100}, dtype)),
                {0.8775825618903728, -0.4161468365471424, 0.8623188722876839}, tolerance);
    EXPECT_FALSE(std::signbit(abs(row({-0.0}, dtype)).item()));
  }
}

TEST(MoreOps, MaximumMinimumAndClampPassNanOnAndShareTies) {
  const Tensor a = row({1, 3, 2, kNan, 1, -kInf}), b = row({2, 2, 2, 1, kNan, kInf});
  expect_equal(maximum(a, b), {2, 3, 2, kNan, kNan, kInf});
  expect_equal(minimum(a, b), {1, 2, 2, kNan, kNan, -kInf});
  expect_equal(clamp(row({-5, -1, 0, 2, 9, kNan}), -1, 2), {-1, -1, 0, 2, 2, kNan});
  const auto gradient = [](auto f, const Values& x, const Values& y) {
    return differentiate([f](const auto& in) { return f(in[0], in[1]); }, {row(x), row(y)}, row({1, 1, 1}));
  };
  const Result largest = gradient(maximum, {1, 3, 2}, {2, 2, 2}),
               smallest = gradient(minimum, {1, 3, 2}, {2, 2, 2});
  expect_equal(largest.gradients[0], {0, 1, 0.5});
  expect_equal(largest.gradients[1], {1, 0, 0.5});
  expect_equal(smallest.gradients[0], {1, 0, 0.5});
  expect_equal(smallest.gradients[1], {0, 1, 0.5});
  // At its bounds clamp has the gradient of x.
  const Result clamped = differentiate([](const auto& in) { return clamp(in[0], -1, 2); },
                                       {row({-3, -1, 2, 5})}, row({1, 1, 1, 1}));
  expect_equal(clamped.gradients[0], {0, 1, 1, 0});
  EXPECT_EQ(error_of([&] { clamp(a, 1, -1); }), "[clamp] the lower bound 1 is above the upper bound -1");
}

TEST(MoreOps, ComparisonsGiveIntegersAndBroadcast) {
  const Tensor a = tensor({3, 1}, {1, 2, kNan}, DType::f32), b = row({1, 2}, DType::f32);
  EXPECT_EQ(gt(a, b).dtype(), DType::i32);
  EXPECT_EQ(gt(a, b).shape(), (Shape{3, 2}));
  expect_equal(gt(a, b), {0, 0, 1, 0, 0, 0});
  expect_equal(ge(a, b), {1, 0, 1, 1, 0, 0});
  expect_equal(lt(a, b), {0, 1, 0, 0, 0, 0});
  expect_equal(le(a, b), {1, 1, 0, 1, 0, 0});
  expect_equal(eq(a, b), {1, 0, 0, 1, 0, 0});
  EXPECT_EQ(error_of([&] { gt(a, b.to(DType::i32)); }), "[gt] needs a floating tensor, got i32(2)");
}

TEST(MoreOps, ArgmaxTakesTheLowestIndexAndTheFirstNan) {
  const Tensor x = tensor({2, 2, 3}, {1, 5, 5, /**/ 1, 4, 6, /**/ 0, kNan, 9, /**/ -1, kNan, 2});
  EXPECT_EQ(argmax(x, -1).dtype(), DType::i32);
  expect_equal(argmax(x, -1), {1, 2, 1, 1});
  expect_equal(argmax(x, 1), {0, 0, 1, 0, 0, 0});
  EXPECT_EQ(argmax(x, 1, true).shape(), (Shape{2, 1, 3}));
  EXPECT_EQ(error_of([&] { argmax(zeros({2, 0}), 1); }),
            "[argmax] f32(2,0) has no elements along axis 1; their maximum is not defined");
}

TEST(MoreOps, GatherAndScatterAddFollowTheIndex) {
  const Tensor x = tensor({2, 3}, {1, 2, 3, 4, 5, 6}), across = tensor({2, 2}, {2, 0, 1, 1}, DType::i32),
               down = tensor({1, 3}, {1, 0, 1}, DType::i32);
  expect_equal(gather(x, 1, across), {3, 1, 5, 5});
  expect_equal(gather(x, 0, down), {4, 2, 6});
  expect_equal(scatter_add(x, -1, across, tensor({2, 2}, {10, 20, 30, 40})), {21, 2, 13, 4, 75, 6});
  expect_equal(scatter_add(x, 0, down, tensor({1, 3}, {10, 20, 30})), {1, 22, 3, 14, 5, 36});
  expect_equal(x, {1, 2, 3, 4, 5, 6});  // not changed in place
  const Tensor bad = tensor({2, 1}, {0, 3}, DType::i32);
  EXPECT_EQ(error_of([&] { gather(x, 1, bad); }), "[gather] id 3 at position 1 is not in [0, 3)");
  EXPECT_EQ(error_of([&] { scatter_add(x, 1, bad, zeros({2, 1})); }),
            "[scatter_add] id 3 at position 1 is not in [0, 3)");
  EXPECT_EQ(error_of([&] { gather(x, 0, bad); }),
            "[gather] the index must have the sizes of x away from axis 0: x f32(2,3), index i32(2,1)");
  EXPECT_EQ(error_of([&] { scatter_add(x, 1, across, zeros({2})); }),
            "[scatter_add] each index needs one value: index i32(2,2), values f32(2)");
}

TEST(MoreOps, CumulativeSumAndVariance) {
  const Tensor x = tensor({2, 4}, {1, 2, 4, 9, -1, 1, -1, 1}, DType::f64);
  expect_equal(cumsum(x, 1), {1, 3, 7, 16, -1, 0, -1, 0});
  expect_equal(cumsum(x, 0), {1, 2, 4, 9, 0, 3, 3, 10});
  expect_near(variance(x, 1), {9.5, 1}, 1e-15);
  expect_near(variance(x, 1, false, 1), {38.0 / 3, 4.0 / 3}, 1e-14);
  // With a mean of a million, f32 has no correct digits of the variance in x^2, but all in x minus the mean.
  expect_near(variance(tensor({4}, {1000001, 1000002, 1000004, 1000009}), 0), {9.5}, 1e-6);
  EXPECT_EQ(
      error_of([&] {
        variance(zeros({3, 1}), 1, false, 1);
      }),
      "[variance] axis 1 of f32(3,1) has 1 elements; their number less the correction 1 must be above 0");
}

TEST(MoreOps, EinsumIsTheSumThatItsEquationSays) {
  const Tensor a = tensor({2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8}), b = tensor({2, 3}, {1, 0, 2, -1, 3, 1});
  const Tensor q = tensor({2, 2}, {1, 2, 3, 4}), k = tensor({2, 2}, {5, 6, 7, 8});
  const Tensor y = einsum("abc, bd -> da", a, b);
  EXPECT_EQ(y.shape(), (Shape{3, 2}));
  expect_equal(y, {-4, -4, 21, 45, 13, 37});
  expect_equal(einsum("ij,ij->", q, k), {70});
  expect_equal(einsum("ij,ij->i", q, k), {17, 53});
  expect_equal(einsum("ij,jk->ki", q, k), {19, 43, 22, 50});
  const auto message = [&](const char* equation) { return error_of([&] { einsum(equation, q, b); }); };
  const std::string form =
      "\" must be two operands and a result, a letter for each axis, as in \"ij,jk->ik\"";
  EXPECT_EQ(message("ij,jk"), "[einsum] \"ij,jk" + form);
  EXPECT_EQ(message("ij->ij"), "[einsum] \"ij->ij" + form);
  EXPECT_EQ(message("i...,jk->i"), "[einsum] \"i...,jk->i" + form);
  EXPECT_EQ(message("ii,ij->i"),
            "[einsum] the letter i is twice in \"ii\" of \"ii,ij->i\"; name each axis once");
  EXPECT_EQ(message("i,ij->i"), "[einsum] \"i\" of \"i,ij->i\" names 1 axes, but the operand is f32(2,2)");
  EXPECT_EQ(message("ij,jk->iz"), "[einsum] the letter z of the result is in no operand of \"ij,jk->iz\"");
  EXPECT_EQ(message("ij,kj->ik"), "[einsum] sizes of j differ: f32(2,2) and f32(2,3) in \"ij,kj->ik\"");
  const Tensor wide = full({1, 1, 1, 1}, 1);
  EXPECT_EQ(error_of([&] { einsum("abcd,efgh->abcdefgh", wide, wide); }),
            "[einsum] the result of \"abcd,efgh->abcdefgh\" has more than 6 axes");
}

}  // namespace
}  // namespace bonsai::test
