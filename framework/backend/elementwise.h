// Elementwise functors, one per op: the forward value and the gradient as scalar templates. g++ vectorises
// them in backend/cpu; nvcc compiles the same source in backend/cuda.
//
// To add an op, write its functor here and its line in elementwise_list.h. The line generates its declaration
// in ops.h, its kernels, its gradient, its row of the op table and its mutants.
#pragma once

#include "bonsai/framework/backend/elementwise_list.h"
#include "bonsai/framework/backend/math.h"
#include "bonsai/framework/core/level.h"

namespace bonsai {
inline namespace BONSAI_LEVEL {

// backward(x, y, dy) may use only x or only y: the one that the op's line names under "saves".

struct Neg {
  template <class T> static constexpr T forward(T x) { return -x; }
  template <class T> static constexpr T backward(T, T, T dy) { return -dy; }
};

// |x|; the gradient at 0 is 0.
struct Abs {
  template <class T> static constexpr T forward(T x) { return x > 0 ? x : T(0) - x; }
  template <class T> static constexpr T backward(T x, T, T dy) { return x > 0 ? dy : x < 0 ? -dy : T(0); }
};

// 1, -1, or x itself for 0 and NaN; the gradient is 0 everywhere.
struct Sign {
  template <class T> static constexpr T forward(T x) { return x > 0 ? T(1) : x < 0 ? T(-1) : x; }
  template <class T> static constexpr T backward(T, T, T) { return T(0); }
};

struct Exp {
  template <class T> static constexpr T forward(T x) { return math::exp(x); }
  template <class T> static constexpr T backward(T, T y, T dy) { return dy * y; }
};

struct Log {
  template <class T> static constexpr T forward(T x) { return math::log(x); }
  template <class T> static constexpr T backward(T x, T, T dy) { return dy / x; }
};

struct Sqrt {
  template <class T> static constexpr T forward(T x) { return math::sqrt(x); }
  template <class T> static constexpr T backward(T, T y, T dy) { return dy / (2 * y); }
};

struct Sin {
  template <class T> static constexpr T forward(T x) { return math::sin(x); }
  template <class T> static constexpr T backward(T x, T, T dy) { return dy * math::cos(x); }
};

struct Cos {
  template <class T> static constexpr T forward(T x) { return math::cos(x); }
  template <class T> static constexpr T backward(T x, T, T dy) { return -dy * math::sin(x); }
};

struct Tanh {
  template <class T> static constexpr T forward(T x) { return math::tanh(x); }
  template <class T> static constexpr T backward(T, T y, T dy) { return dy * (1 - y * y); }
};

struct Sigmoid {
  template <class T> static constexpr T forward(T x) { return math::sigmoid(x); }
  template <class T> static constexpr T backward(T, T y, T dy) { return dy * y * (1 - y); }
};

// max(x, 0); the gradient at 0 is 0; NaN stays NaN.
struct Relu {
  template <class T> static constexpr T forward(T x) { return x < 0 ? T(0) : x; }
  template <class T> static constexpr T backward(T, T y, T dy) { return y > 0 ? dy : T(0); }
};

// x * sigmoid(x)                                      Hendrycks & Gimpel 2016, arXiv:1606.08415
struct Silu {
  template <class T> static constexpr T forward(T x) { return x * math::logistic(x); }
  template <class T> static constexpr T backward(T x, T, T dy) {
    const T s = math::logistic(x);
    return dy * s * (1 + x * (1 - s));
  }
};

// x * P(N(0,1) <= x) = x * (1 + erf(x / sqrt 2)) / 2  Hendrycks & Gimpel 2016, arXiv:1606.08415
struct Gelu {
  template <class T> static constexpr T forward(T x) {
    return T(0.5) * x * (1 + math::erf(x * T(0.70710678118654752440)));
  }
  template <class T> static constexpr T backward(T x, T, T dy) {
    const T below = T(0.5) * (1 + math::erf(x * T(0.70710678118654752440)));
    const T density = T(0.39894228040143267794) * math::exp(T(-0.5) * x * x);
    return dy * (below + x * density);
  }
};

// The tanh approximation of GELU, GPT-2's "gelu_new": x * (1 + tanh(u)) / 2 = x * sigmoid(2 u) with
// u = sqrt(2 / pi) * (x + 0.044715 x^3).
struct GeluTanh {
  template <class T> static constexpr T k = T(2 * 0.79788456080286535588);
  template <class T> static constexpr T c = T(0.044715);

  template <class T> static constexpr T forward(T x) {
    return x * math::logistic(x * (k<T> + k<T> * c<T> * x * x));
  }
  // dy/dx = s + s (1 - s) 2 x du/dx with s = sigmoid(2 u). 1 - s is computed as e s with e = exp(-2 u), which
  // loses no digits when s is nearly 1.
  template <class T> static constexpr T backward(T x, T, T dy) {
    const T v = math::min(math::max(x, T(-9.98)), T(9.98));  // beyond these the gradient is 0 or 1
    const T e = math::near_exp(-v * (k<T> + k<T> * c<T> * v * v)), s = 1 / (1 + e);
    const T slope = s + e * s * s * v * (k<T> + 3 * k<T> * c<T> * v * v);
    return dy * (x < T(-9.98) ? T(0) : slope);
  }
};

}  // namespace BONSAI_LEVEL
}  // namespace bonsai
