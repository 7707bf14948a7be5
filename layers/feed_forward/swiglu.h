// SwiGLU: down(silu(gate(x)) * up(x)).                                Shazeer 2020, arXiv:2002.05202
#pragma once

#include "layers/linear.h"
#include "layers/registry.h"

namespace bonsai {

struct SwiGLUConfig {
  int64_t d_model = 1;
  int64_t d_hidden = 0;
  bool bias = false;
  double deviation = 0.02;
  template <class V>
  void visit(V& v) {
    v("d_hidden", d_hidden,
      "width inside; 0 chooses 8/3 * d_model, as many parameters as 4 * d_model without a gate", at_least(0));
    v("bias", bias, "biases of the projections");
    v("deviation", deviation, "standard deviation of the first weights", at_least(0));
  }
};

class SwiGLU final : public Layer {
 public:
  SwiGLU(Module* parent, std::string name, const SwiGLUConfig& c)
      : Layer(parent, std::move(name)),
        width_(c.d_hidden ? c.d_hidden : 8 * c.d_model / 3),
        gate{this, "gate", {.in = c.d_model, .out = width_, .bias = c.bias, .deviation = c.deviation}},
        up{this, "up", {.in = c.d_model, .out = width_, .bias = c.bias, .deviation = c.deviation}},
        down{this, "down", {.in = width_, .out = c.d_model, .bias = c.bias, .deviation = c.deviation}} {}

 protected:
  Tensor forward(const Tensor& x, Context& context) override {  // (...,C) -> (...,C)
    return down(mul(silu(gate(x, context)), up(x, context)), context);
  }

 private:
  int64_t width_;

 public:
  Linear gate, up, down;
};

using SwiGLUKeys = FeedForwardKeysOf<SwiGLU, SwiGLUConfig>;

}  // namespace bonsai
