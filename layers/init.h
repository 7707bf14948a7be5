// Initial values of parameters.
#pragma once

#include "bonsai/framework/core/rng.h"
#include "bonsai/framework/core/tensor.h"

namespace bonsai {

constexpr double kInitStd = 0.02;  // default std of initial weights.  Radford et al. 2018 (GPT)

// A normal distribution, or a constant if std is 0.
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

// Returns the part of an initial tensor of shape `whole`. Its values do not depend on the number of parts.
Tensor initial_tensor(const Shape& whole, const Initial& initial, DType dtype, Device device, RandomKey key,
                      const Part& part = {});

}  // namespace bonsai
