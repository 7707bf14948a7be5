// Helpers of several tests: comparing tensors, reading gradients, and the folder of fixtures.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "bonsai/framework/autograd/tape.h"
#include "bonsai/framework/core/parallel.h"
#include "bonsai/framework/core/rng.h"
#include "bonsai/framework/core/tensor.h"

namespace bonsai::test {

// max|a - b| / max|b|, or max|a| where b is all zero; infinite for other shapes or NaN against a number.
inline double relative_error(const Tensor& a, const Tensor& b) {
  if (!a || !b || a.shape() != b.shape()) return INFINITY;
  const auto x = a.values(), y = b.values();
  double worst = 0, largest = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (x[i] == y[i]) continue;  // also equal infinities
    const double d = std::abs(x[i] - y[i]);
    worst = std::isnan(d) ? INFINITY : std::max(worst, d);
  }
  for (double v : y)
    if (std::isfinite(v)) largest = std::max(largest, std::abs(v));
  return largest > 0 ? worst / largest : worst;
}

// The largest size of an element; infinite where one is NaN.
inline double largest(const Tensor& x) {
  double most = 0;
  for (const double v : x.values()) most = std::max(most, std::isnan(v) ? INFINITY : std::abs(v));
  return most;
}

// With the relative error that rounding may leave.
constexpr std::pair<DType, double> kTypes[] = {{DType::f32, 1e-5}, {DType::f64, 1e-12}};

inline bool same_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() &&
         std::memcmp(a.data(), b.data(), static_cast<size_t>(a.elements()) * size_of(a.dtype())) == 0;
}

inline Tensor random_tensor(const Shape& shape, DType dtype, uint64_t seed = 1) {
  std::vector<double> values(static_cast<size_t>(shape.elements()));
  const RandomKey key = random_key(seed, "random_tensor");
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(random_normal(key, i));
  return tensor(shape, values, dtype);
}

inline bool differentiable(const Tensor& x) { return x && is_floating(x.dtype()); }

// The floating ones as leaves of the tape, and their gradients in order.
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

struct Result {
  Tensor y;
  std::vector<Tensor> gradients;
};

// y = f(inputs) and the gradients of sum(y * dy); dy is random where it is not given.
inline Result differentiate(const std::function<Tensor(const std::vector<Tensor>&)>& f,
                            const std::vector<Tensor>& inputs, const Tensor& dy = {}) {
  Tape tape;
  const std::vector<Tensor> watched = watch_all(tape, inputs);
  const Tensor y = f(watched);
  const Tensor kept = y.copy();
  tape.backward(y, dy ? dy : random_tensor(y.shape(), y.dtype(), 99));
  return {kept, gradients_of(tape, watched)};
}

struct Threads {
  explicit Threads(int count) { set_threads(count); }
  ~Threads() { set_threads(before); }
  int before = threads();
};

inline std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

inline std::vector<double> values(const Tensor& x) { return x.values(); }

// Values written out to the digits given.
inline void expect_values(const Tensor& x, const std::vector<double>& expected, double tolerance = 0) {
  const auto got = x.values();
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (tolerance == 0)
      EXPECT_EQ(got[i], expected[i]) << "element " << i;
    else
      EXPECT_NEAR(got[i], expected[i], tolerance) << "element " << i;
  }
}

inline std::filesystem::path fixtures() {
  const char* other = std::getenv("BONSAI_FIXTURES");
  return other ? other : BONSAI_SOURCE_DIR "/tests/fixtures";
}

}  // namespace bonsai::test
