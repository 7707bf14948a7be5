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

#include "bonsai/framework/checks/differentiate.h"
#include "bonsai/framework/core/parallel.h"

namespace bonsai::test {

// The largest absolute value of an element; infinite if one is NaN.
inline double largest(const Tensor& x) {
  double most = 0;
  for (const double v : x.values()) most = std::max(most, std::isnan(v) ? INFINITY : std::abs(v));
  return most;
}

// The dtypes and their tolerances of relative rounding error.
constexpr std::pair<DType, double> kTypes[] = {{DType::f32, 1e-5}, {DType::f64, 1e-12}};

using Result = Differentiated;

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

// Compares with values that are written out to a number of digits.
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
