// How a parameter starts.
#pragma once

#include "bonsai/framework/core/rng.h"
#include "bonsai/framework/core/tensor.h"

namespace bonsai {

struct Initial {
  double mean = 0, init_std = 0;  // of a normal distribution; 0 deviation is a constant
};
constexpr Initial constant(double value) { return {value, 0}; }
constexpr Initial normal(double init_std) { return {0, init_std}; }

// One of `count` equal parts of an axis.
struct Part {
  int axis = 0;
  int64_t index = 0, count = 1;
};

// That part of the tensor of this shape: the same numbers as where the whole is drawn.
Tensor initial_tensor(const Shape& whole, const Initial& initial, DType dtype, Device device, RandomKey key,
                      const Part& part = {});

}  // namespace bonsai
