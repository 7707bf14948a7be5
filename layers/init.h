// How a parameter starts.
#pragma once

#include "bonsai/framework/core/rng.h"
#include "bonsai/framework/core/tensor.h"

namespace bonsai {

constexpr double kInitStd = 0.02;  // the default of initial weights.  Radford et al. 2018 (GPT)

// A normal distribution; with a standard deviation of 0, a constant.
struct Initial {
  double mean = 0, std = 0;
};
constexpr Initial constant(double value) { return {value, 0}; }
constexpr Initial normal(double std) { return {0, std}; }

// One of `count` equal parts of an axis.
struct Part {
  int axis = 0;
  int64_t index = 0, count = 1;
};

// That part of the tensor of this shape: the same numbers as where the whole is drawn.
Tensor initial_tensor(const Shape& whole, const Initial& initial, DType dtype, Device device, RandomKey key,
                      const Part& part = {});

}  // namespace bonsai
