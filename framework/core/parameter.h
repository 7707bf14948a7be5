// A trainable value with its gradient. Pinned in the module that owns it: tying two layers means
// both refer to one Parameter, which is then counted, decayed, clipped and saved once.
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
  Tensor grad;            // like value; meaningful once contributions > 0
  bool decay;             // in the optimizer's weight-decay group
  bool trainable = true;  // false: no gradient is computed
  int contributions = 0;  // gradients added since the last zero_gradient()

  void zero_gradient() { contributions = 0; }
};

}  // namespace bonsai
