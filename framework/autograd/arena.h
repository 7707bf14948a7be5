// Stores all parameters contiguously, so that the optimizer, the gradient norm, zeroing and averaging
// over ranks are each one pass over one range of memory.
#pragma once

#include <vector>

#include "bonsai/framework/core/parameter.h"

namespace bonsai {

class ParameterArena {
 public:
  // Moves the values and gradients of the trainable parameters into the arena: first those with weight
  // decay, then the rest. Each starts at a multiple of kAlignment elements; the padding stays 0.
  explicit ParameterArena(std::vector<Parameter*> parameters);
  ParameterArena(const ParameterArena&) = delete;
  ParameterArena& operator=(const ParameterArena&) = delete;

  static constexpr int64_t kAlignment = 16;

  Tensor& values() { return values_; }  // (elements)
  // Sets the gradients of parameters without a contribution to 0 first.
  Tensor& gradients();
  void zero_gradients();

  int64_t elements() const { return values_ ? values_.elements() : 0; }
  const std::vector<Parameter*>& parameters() const { return parameters_; }

 private:
  std::vector<Parameter*> parameters_;
  Tensor values_, gradients_;
};

}  // namespace bonsai
