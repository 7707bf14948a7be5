// How a parameter starts.
#pragma once

#include "framework/core/rng.h"
#include "framework/core/tensor.h"

namespace bonsai {

struct Initial {
  double mean = 0, deviation = 0;  // of a normal distribution; 0 deviation is a constant
};
constexpr Initial constant(double value) { return {value, 0}; }
constexpr Initial normal(double deviation) { return {0, deviation}; }

Tensor initial_tensor(const Shape& shape, const Initial& initial, DType dtype, Device device, RandomKey key);

}  // namespace bonsai
