#pragma once
// Elementary functions for the elementwise kernels, one source for g++ and nvcc. A libm call prevents a
// loop from being vectorised, so float has functions of its own: straight-line code without branches,
// which compilers vectorise. double is the reference type and uses std. The errors stated below are the
// maximum over all floats, in ulps of the rounded double result. NaN gives NaN; infinities, signed zeros
// and denormals are handled correctly. The bounds hold with and without contraction of a * b + c to FMA.
// They require IEEE arithmetic: no -ffast-math, no flushing of denormals.
//
// Everything is in a namespace named after the instruction-set level (see core/level.h). For the same
// reason the float functions call no std:: overload: std::sqrt(float) is a weak symbol, sqrtf is not.

#include <cmath>
#include <concepts>
#include <limits>

#include "bonsai/framework/core/level.h"

namespace bonsai {
inline namespace BONSAI_LEVEL {
namespace math {

template <class T>
inline constexpr T infinity = std::numeric_limits<T>::infinity();

// The larger of a and b. If a is NaN, the result is NaN; if only b is NaN, the result is a.
template <class T>
constexpr T max(T a, T b) {
  return a < b ? b : a;
}

// The smaller of a and b. If a is NaN, the result is NaN; if only b is NaN, the result is a.
template <class T>
constexpr T min(T a, T b) {
  return b < a ? b : a;
}

namespace detail {

constexpr float kSmallestNormal = std::numeric_limits<float>::min();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kLn2High = 0.693145751953125f;  // 15 bits: its product with an exponent is exact
constexpr float kLn2Low = 1.428606765330187e-06f;

constexpr float from_bits(unsigned bits) { return __builtin_bit_cast(float, bits); }
constexpr unsigned to_bits(float x) { return __builtin_bit_cast(unsigned, x); }
constexpr float absolute(float x) { return from_bits(to_bits(x) & 0x7FFFFFFFu); }
constexpr float with_sign_of(float magnitude, float x) {
  return from_bits(to_bits(magnitude) | (to_bits(x) & 0x80000000u));
}
constexpr float power_of_two(int n) { return from_bits(static_cast<unsigned>(n + 127) << 23); }

// exp(x) = result * 2^n for |x| <= 104, with n = round(x / ln 2), r = x - n ln 2 and result = 1 + r + r^2
// P(r).
constexpr float exp_reduced(float x, int& n) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: the sum has n in its low bits
  const float shifted = x * 1.44269504088896341f + kRound;
  n = static_cast<int>(to_bits(shifted) - to_bits(kRound));
  const float rounded = shifted - kRound;
  const float r = (x - rounded * kLn2High) - rounded * kLn2Low;
  float p = 0.00138144672f;
  p = p * r + 0.00836878084f;
  p = p * r + 0.0416683927f;
  p = p * r + 0.166665196f;
  p = p * r + 0.49999994f;
  return (p * (r * r) + r) + 1.0f;
}

}  // namespace detail

// e^x, 1 ulp; gives denormals and infinity as std::exp does.
template <std::floating_point T>
constexpr T exp(T x) {
  if constexpr (std::same_as<T, float>) {
    // Multiplications with a denormal result are slow on some processors. For a masked score, -infinity, none
    // occurs.
    const bool none = x < -104.0f;
    int n = 0;
    const float p = detail::exp_reduced(none ? 0.0f : min(x, 89.0f), n);
    const int half = n >> 1;  // multiply by 2^n in two normal factors, so that only the last product rounds
    const float y = p * detail::power_of_two(half) * detail::power_of_two(n - half);
    return none ? 0.0f : y;
  } else {
    return std::exp(x);
  }
}

// e^x for -87 <= x <= 89, where f32 results are normal or, from 88.4 on, infinity.
template <std::floating_point T>
constexpr T near_exp(T x) {
  if constexpr (std::same_as<T, float>) {
    int n = 0;
    const float p = detail::exp_reduced(x, n);
    return p * detail::power_of_two(n);
  } else {
    return std::exp(x);
  }
}

// Natural logarithm, 1 ulp; -infinity at +-0, NaN for negative x. For x = 2^e (1 + f) it is
// e ln 2 + f - f^2 / 2 + f^3 P(f).
template <std::floating_point T>
constexpr T log(T x) {
  if constexpr (std::same_as<T, float>) {
    constexpr unsigned kSqrtHalf = 0x3F3504F3u;  // 1 + f lies in [sqrt(1/2), sqrt(2))
    const bool tiny = x < detail::kSmallestNormal;
    const unsigned bits = detail::to_bits(tiny ? x * 33554432.0f : x) - kSqrtHalf;
    const float e = static_cast<float>(static_cast<int>(bits) >> 23) - (tiny ? 25.0f : 0.0f);
    const float f = detail::from_bits((bits & 0x007FFFFFu) + kSqrtHalf) - 1.0f;
    float p = -0.0763449892f;
    p = p * f + 0.127619684f;
    p = p * f - 0.131603613f;
    p = p * f + 0.142017171f;
    p = p * f - 0.166233361f;
    p = p * f + 0.200012282f;
    p = p * f - 0.250008225f;
    p = p * f + 0.333333313f;
    const float f2 = f * f;
    const float low = (p * f) * f2 - 0.5f * f2 + e * detail::kLn2Low;
    const float y = (f + low) + e * detail::kLn2High;
    const float above = x < infinity<float> ? y : x;  // infinity and NaN map to themselves
    const float signless = x < 0.0f ? detail::kNan : above;
    return x == 0.0f ? -infinity<float> : signless;
  } else {
    return std::log(x);
  }
}

// Hyperbolic tangent, 1 ulp: x + x^3 P(x^2) for |x| < 0.625, else 1 - 2 / (e^2x + 1). tanh(-x) = -tanh(x)
// exactly.
template <std::floating_point T>
constexpr T tanh(T x) {
  if constexpr (std::same_as<T, float>) {
    const float a = detail::absolute(x);
    const float a2 = a * a;
    float p = -0.00570499245f;
    p = p * a2 + 0.0206390917f;
    p = p * a2 - 0.0537397154f;
    p = p * a2 + 0.133314416f;
    p = p * a2 - 0.333332807f;
    const float small = (p * a2) * a + a;
    const float large = 1.0f - 2.0f / (near_exp(2.0f * min(a, 10.0f)) + 1.0f);
    return detail::with_sign_of(a < 0.625f ? small : large, x);
  } else {
    return std::tanh(x);
  }
}

// Error function, 1 ulp: x + x P(x^2) for |x| < 0.925, else 1 - e^(x Q(x)). erf(-x) = -erf(x) exactly.
template <std::floating_point T>
constexpr T erf(T x) {
  if constexpr (std::same_as<T, float>) {
    const float a = detail::absolute(x);
    const float a2 = a * a;
    float p = -0.000597659266f;
    p = p * a2 + 0.00499041332f;
    p = p * a2 - 0.0267647542f;
    p = p * a2 + 0.11281766f;
    p = p * a2 - 0.376124889f;
    p = p * a2 + 0.128379151f;
    const float small = p * a + a;
    const float b = min(a, 4.0f);  // erf rounds to 1 from 3.84 on
    float q = 0.000213984735f;
    q = q * b - 0.0032149537f;
    q = q * b + 0.0228899568f;
    q = q * b - 0.105261832f;
    q = q * b - 0.635718346f;
    q = q * b - 1.12851441f;
    const float large = 1.0f - near_exp(q * b);
    return detail::with_sign_of(a < 0.925f ? small : large, x);
  } else {
    return std::erf(x);
  }
}

// 1 / (1 + e^-x), 2 ulp; computed from e^-|x| so that neither tail overflows.
template <std::floating_point T>
constexpr T sigmoid(T x) {
  const T e = exp(x < T(0) ? x : -x);
  return (x < T(0) ? e : T(1)) / (T(1) + e);
}

// sigmoid(x) for use in x * sigmoid(x), 2 ulp. In f32 it is 0 instead of a denormal below -88.4, where
// |x sigmoid(x)| < 1e-36.
template <std::floating_point T>
constexpr T logistic(T x) {
  if constexpr (std::same_as<T, float>) {
    return 1.0f / (1.0f + near_exp(-min(max(x, -89.0f), 87.0f)));  // infinity from 88.4 on
  } else {
    return 1 / (1 + exp(-x));
  }
}

// Square root, correctly rounded.
template <std::floating_point T>
constexpr T sqrt(T x) {
  if constexpr (std::same_as<T, float>) {
    return ::sqrtf(x);
  } else {
    return std::sqrt(x);
  }
}

// Sine and cosine of x in radians, by libm and therefore not vectorised.
template <std::floating_point T>
constexpr T sin(T x) {
  if constexpr (std::same_as<T, float>) {
    return ::sinf(x);
  } else {
    return std::sin(x);
  }
}
template <std::floating_point T>
constexpr T cos(T x) {
  if constexpr (std::same_as<T, float>) {
    return ::cosf(x);
  } else {
    return std::cos(x);
  }
}

// x^a, by libm and therefore not vectorised.
template <std::floating_point T>
constexpr T pow(T x, T a) {
  if constexpr (std::same_as<T, float>) {
    return ::powf(x, a);
  } else {
    return std::pow(x, a);
  }
}

}  // namespace math
}  // namespace BONSAI_LEVEL
}  // namespace bonsai
