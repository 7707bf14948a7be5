// The causal mask: position i may not attend to what comes after it.
#pragma once

#include "bonsai/framework/ops/ops.h"
#include "bonsai/layers/module.h"

namespace bonsai {

// Scores (...,Tq,Tk) in, scores out: -inf where key j lies after query i. The last query lines up with
// the last key, so with Tq < Tk the queries are the last ones. The gradient is exactly 0 where masked.
class CausalMask final : public Layer {
 public:
  using Layer::Layer;

 protected:
  Tensor forward(const Tensor& scores, Context&) override { return causal_mask(scores); }
};

}  // namespace bonsai
