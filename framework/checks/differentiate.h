// Computes the result and the gradients of a function of tensors, and compares tensors. Used by checks and
// tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include "bonsai/framework/autograd/tape.h"
#include "bonsai/framework/core/rng.h"

namespace bonsai {

// max|a - b| / max|b|, or max|a| if b is all zero. Infinite if the shapes differ or only one element is NaN.
inline double relative_error(const Tensor& a, const Tensor& b) {
  if (!a || !b || a.shape() != b.shape()) return INFINITY;
  const auto x = a.values(), y = b.values();
  double worst = 0, largest = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (x[i] == y[i]) continue;  // includes equal infinities
    const double d = std::abs(x[i] - y[i]);
    worst = std::isnan(d) ? INFINITY : std::max(worst, d);
  }
  for (double v : y)
    if (std::isfinite(v)) largest = std::max(largest, std::abs(v));
  return largest > 0 ? worst / largest : worst;
}

// True if shapes, dtypes and all bits of the elements are equal.
inline bool same_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() &&
         std::memcmp(a.data(), b.data(), static_cast<size_t>(a.elements()) * size_of(a.dtype())) == 0;
}

// Normal values from a fixed seed, the same in f32 and f64.
inline Tensor random_tensor(const Shape& shape, DType dtype, uint64_t seed = 1) {
  std::vector<double> values(static_cast<size_t>(shape.elements()));
  const RandomKey key = random_key(seed, "random_tensor");
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(random_normal(key, i));
  return tensor(shape, values, dtype);
}

inline bool differentiable(const Tensor& x) { return x && is_floating(x.dtype()); }

// Makes the floating inputs leaves of the tape; gradients_of() returns their gradients in order.
inline std::vector<Tensor> watch_all(Tape& tape, const std::vector<Tensor>& inputs) {
  std::vector<Tensor> watched;
  for (const Tensor& x : inputs) watched.push_back(differentiable(x) ? tape.watch(x) : x);
  return watched;
}
inline std::vector<Tensor> gradients_of(Tape& tape, const std::vector<Tensor>& watched) {
  std::vector<Tensor> gradients;
  for (const Tensor& x : watched)
    if (differentiable(x)) gradients.push_back(tape.gradient(x));
  return gradients;
}

struct Differentiated {
  Tensor y;
  std::vector<Tensor> gradients;  // of the floating inputs, in order
};

// y = f(inputs) and the gradients of sum(y * dy); dy is random unless it is given.
inline Differentiated differentiate(const std::function<Tensor(const std::vector<Tensor>&)>& f,
                                    const std::vector<Tensor>& inputs, const Tensor& dy = {}) {
  Tape tape;
  const std::vector<Tensor> watched = watch_all(tape, inputs);
  const Tensor y = f(watched);
  const Tensor kept = y.copy();
  tape.backward(y, dy ? dy : random_tensor(y.shape(), y.dtype(), 99));
  return {kept, gradients_of(tape, watched)};
}

}  // namespace bonsai
