// A trainable tensor and its gradient. It cannot be moved out of the module that owns it. Tied layers
// refer to one Parameter, which is therefore counted, decayed, clipped and saved once.
#pragma once

#include <string>

#include "bonsai/framework/core/tensor.h"

namespace bonsai {

struct Parameter {
  Parameter(std::string path, const Tensor& initial, bool decay)
      : path(std::move(path)), value(initial.with_parameter(this)), decay(decay) {}
  Parameter(const Parameter&) = delete;
  Parameter& operator=(const Parameter&) = delete;

  std::string path;  // "block.0.attention.query.weight"
  Tensor value;
  Tensor grad;            // shape and dtype of value; valid if contributions > 0
  bool decay;             // the optimizer applies weight decay
  bool trainable = true;  // false: no gradient is computed
  int contributions = 0;  // gradients accumulated since the last zero_gradient()

  void zero_gradient() { contributions = 0; }
};

}  // namespace bonsai
