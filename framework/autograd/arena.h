// Parameters end to end in memory, so that the optimizer, the gradient norm, zeroing and averaging
// over ranks are each one pass over one range.
#pragma once

#include <vector>

#include "bonsai/framework/core/parameter.h"

namespace bonsai {

class ParameterArena {
 public:
  // Moves values and gradients of the trainable ones: those with weight decay first, then the rest.
  // Each starts at a multiple of kAlignment elements; what lies between is 0 and stays 0.
  explicit ParameterArena(std::vector<Parameter*> parameters);
  ParameterArena(const ParameterArena&) = delete;
  ParameterArena& operator=(const ParameterArena&) = delete;

  static constexpr int64_t kAlignment = 16;

  Tensor& values() { return values_; }  // (elements)
  // Gradients of parameters that got no contribution are set to 0 first.
  Tensor& gradients();
  void zero_gradients();

  int64_t elements() const { return values_ ? values_.elements() : 0; }
  int64_t decayed() const { return decayed_; }  // the first elements, which decay
  const std::vector<Parameter*>& parameters() const { return parameters_; }

 private:
  std::vector<Parameter*> parameters_;
  Tensor values_, gradients_;
  int64_t decayed_ = 0;
};

}  // namespace bonsai
