// The accuracy of the float functions in math.h. Each is compared with the double std:: function at a million
// floats spread evenly over all bit patterns (both signs, denormals, infinities, NaNs), and near the values
// where its formula changes.

#include "bonsai/framework/backend/math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <limits>
#include <string>
#include <vector>

namespace {

namespace math = bonsai::math;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kSmallestDenormal = std::numeric_limits<float>::denorm_min();
constexpr float kSmallestNormal = std::numeric_limits<float>::min();
constexpr float kLargest = std::numeric_limits<float>::max();
constexpr std::int64_t kAllowedUlp = 4;
constexpr std::int64_t kWrong = std::int64_t{1} << 40;  // the distance if only one is NaN

// Maps floats to integers in the order of their values; -0 and +0 both give 0.
std::int64_t rank(float x) {
  const std::int64_t magnitude = std::bit_cast<std::uint32_t>(x) & 0x7FFFFFFFu;
  return std::signbit(x) ? -magnitude : magnitude;
}

std::int64_t ulp_distance(float got, float want) {
  if (std::isnan(got) || std::isnan(want)) return std::isnan(got) == std::isnan(want) ? 0 : kWrong;
  return std::abs(rank(got) - rank(want));
}

// 2^20 floats at a fixed odd stride through the bit patterns, and the neighbours of each +-`around`.
std::vector<float> samples(std::initializer_list<float> around) {
  constexpr std::uint32_t kStride = 4099;
  constexpr std::uint32_t kNeighbours = 256;
  std::vector<float> xs;
  for (std::uint32_t i = 0; i < 1u << 20; ++i) xs.push_back(std::bit_cast<float>(i * kStride));
  for (const float centre : around) {
    const std::uint32_t first = std::bit_cast<std::uint32_t>(centre) - kNeighbours;
    for (std::uint32_t i = 0; i <= 2 * kNeighbours; ++i) {
      const float x = std::bit_cast<float>(first + i);
      xs.insert(xs.end(), {x, -x});
    }
  }
  for (const float x : {0.0f, kSmallestDenormal, kSmallestNormal, kLargest, kInfinity, kNan}) {
    xs.insert(xs.end(), {x, -x});
  }
  return xs;
}

// A separate loop computes the results, so that an optimised build tests the vector code.
template <class Function>
std::vector<float> map(const std::vector<float>& xs, Function function) {
  std::vector<float> ys(xs.size());
  const float* x = xs.data();
  float* y = ys.data();
  for (std::size_t i = 0, count = xs.size(); i < count; ++i) y[i] = function(x[i]);
  return ys;
}

template <class Function, class Reference>
void expect_close(const std::vector<float>& xs, Function function, Reference reference) {
  const std::vector<float> ys = map(xs, function);
  std::int64_t worst = 0;
  std::size_t at = 0;
  for (std::size_t i = 0; i < xs.size(); ++i) {
    const std::int64_t distance = ulp_distance(ys[i], static_cast<float>(reference(double{xs[i]})));
    if (distance > worst) {
      worst = distance;
      at = i;
    }
  }
  testing::Test::RecordProperty("worst_ulp", std::to_string(worst));
  EXPECT_LE(worst, kAllowedUlp) << "ulp; worst at x = " << testing::PrintToString(xs[at])
                                << ": got " << testing::PrintToString(ys[at]) << ", double gives "
                                << testing::PrintToString(reference(double{xs[at]}));
}

template <class Function>
void expect_odd_to_the_bit(const std::vector<float>& xs, Function function) {
  const std::vector<float> ys = map(xs, function);
  const std::vector<float> mirrored = map(xs, [function](float x) { return function(-x); });
  for (std::size_t i = 0; i < xs.size(); ++i) {
    if (std::isnan(xs[i])) continue;
    const auto bits = std::bit_cast<std::uint32_t>(-ys[i]);
    ASSERT_EQ(std::bit_cast<std::uint32_t>(mirrored[i]), bits) << "x = " << xs[i];
    ASSERT_EQ(std::signbit(ys[i]), std::signbit(xs[i])) << "x = " << xs[i];
  }
}

double reference_sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

TEST(Math, SoftmaxAndLossLoseDigitsWhereExpIsOff) {
  expect_close(samples({0.34657359f, 87.336544f, 88.722839f, 89.0f, 103.27893f, 104.0f}),
               [](float x) { return math::exp(x); }, [](double x) { return std::exp(x); });
}

TEST(Math, LossLosesDigitsWhereLogIsOff) {
  expect_close(samples({kSmallestNormal, 0.70710678f, 1.0f, 1.41421356f, 2.0f}),
               [](float x) { return math::log(x); }, [](double x) { return std::log(x); });
}

TEST(Math, GeluLosesDigitsWhereTanhIsOff) {
  expect_close(samples({0.625f, 9.0109133f, 10.0f}), [](float x) { return math::tanh(x); },
               [](double x) { return std::tanh(x); });
}

TEST(Math, ExactGeluLosesDigitsWhereErfIsOff) {
  expect_close(samples({0.925f, 3.8325069f, 4.0f}), [](float x) { return math::erf(x); },
               [](double x) { return std::erf(x); });
}

TEST(Math, SiluLosesDigitsWhereSigmoidIsOff) {
  expect_close(samples({17.328679f, 87.336544f, 88.722839f, 103.27893f, 104.0f}),
               [](float x) { return math::sigmoid(x); }, reference_sigmoid);
}

TEST(Math, AnActivationIsNotSymmetricWhereTanhOrErfIsNotOdd) {
  const std::vector<float> xs = samples({0.625f, 0.925f, 4.0f, 10.0f});
  expect_odd_to_the_bit(xs, [](float x) { return math::tanh(x); });
  expect_odd_to_the_bit(xs, [](float x) { return math::erf(x); });
}

TEST(Math, AMaskedScoreOfMinusInfinityGetsWeightWhereALimitIsInexact) {
  EXPECT_EQ(math::exp(-kInfinity), 0.0f);
  EXPECT_EQ(math::exp(-kLargest), 0.0f);
  EXPECT_EQ(math::exp(kInfinity), kInfinity);
  EXPECT_EQ(math::exp(kLargest), kInfinity);
  EXPECT_EQ(math::exp(0.0f), 1.0f);
  EXPECT_EQ(math::exp(-0.0f), 1.0f);
  EXPECT_EQ(math::log(1.0f), 0.0f);
  EXPECT_EQ(math::log(0.0f), -kInfinity);
  EXPECT_EQ(math::log(-0.0f), -kInfinity);
  EXPECT_EQ(math::log(kInfinity), kInfinity);
  for (const float x : {10.0f, kLargest, kInfinity}) {
    EXPECT_EQ(math::tanh(x), 1.0f);
    EXPECT_EQ(math::tanh(-x), -1.0f);
    EXPECT_EQ(math::erf(x), 1.0f);
    EXPECT_EQ(math::erf(-x), -1.0f);
  }
  EXPECT_EQ(math::sigmoid(0.0f), 0.5f);
  EXPECT_EQ(math::sigmoid(kInfinity), 1.0f);
  EXPECT_EQ(math::sigmoid(-kInfinity), 0.0f);
}

TEST(Math, ADivergedRunLooksHealthyWhereNanIsSwallowed) {
  for (const float x : {kNan, -kNan}) {
    EXPECT_TRUE(std::isnan(math::exp(x)));
    EXPECT_TRUE(std::isnan(math::log(x)));
    EXPECT_TRUE(std::isnan(math::tanh(x)));
    EXPECT_TRUE(std::isnan(math::erf(x)));
    EXPECT_TRUE(std::isnan(math::sigmoid(x)));
    EXPECT_TRUE(std::isnan(math::sqrt(x)));
    EXPECT_TRUE(std::isnan(math::pow(x, 0.5f)));
    EXPECT_TRUE(std::isnan(math::max(x, 0.0f)));
    EXPECT_TRUE(std::isnan(math::min(x, 0.0f)));
  }
  for (const float x : {-kSmallestDenormal, -1.0f, -kLargest, -kInfinity}) {
    EXPECT_TRUE(std::isnan(math::log(x))) << x;
    EXPECT_TRUE(std::isnan(math::sqrt(x))) << x;
  }
}

TEST(Math, OptimizersLoseDigitsWhereSqrtOrPowIsOff) {
  expect_close(samples({1.0f}), [](float x) { return math::sqrt(x); },
               [](double x) { return std::sqrt(x); });
  expect_close(samples({1.0f}), [](float x) { return math::pow(x, 0.75f); },
               [](double x) { return std::pow(x, 0.75); });
}

TEST(Math, GradientChecksInDoubleFailWhereDoubleIsComputedInFloat) {
  for (const double x : {1e-300, 0.1, 0.7, 1.5, 30.0}) {
    EXPECT_EQ(math::exp(x), std::exp(x));
    EXPECT_EQ(math::log(x), std::log(x));
    EXPECT_EQ(math::tanh(x), std::tanh(x));
    EXPECT_EQ(math::erf(x), std::erf(x));
    EXPECT_EQ(math::sqrt(x), std::sqrt(x));
    EXPECT_EQ(math::pow(x, 0.3), std::pow(x, 0.3));
    EXPECT_DOUBLE_EQ(math::sigmoid(x), reference_sigmoid(x));
    EXPECT_DOUBLE_EQ(math::sigmoid(-x), reference_sigmoid(-x));
  }
}

TEST(Math, DeviceCodeDoesNotCompileWhereFloatFunctionsAreNotConstexpr) {
  static_assert(math::exp(0.0f) == 1.0f);
  static_assert(math::log(1.0f) == 0.0f);
  static_assert(math::tanh(-10.0f) == -1.0f);
  static_assert(math::erf(4.0f) == 1.0f);
  static_assert(math::sigmoid(0.0f) == 0.5f);
  static_assert(math::max(1.0f, 2.0f) == 2.0f && math::min(1.0f, 2.0f) == 1.0f);
}

}  // namespace
