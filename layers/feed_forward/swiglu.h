// SwiGLU: down(silu(gate(x)) * up(x)).                                Shazeer 2020, arXiv:2002.05202
#pragma once

#include "bonsai/layers/dropout.h"
#include "bonsai/layers/linear.h"
#include "bonsai/layers/registry.h"

namespace bonsai {

struct SwiGLUConfig {
  int64_t d_model = 1;
  int64_t d_hidden = 0;  // 0 chooses 8/3 d_model, which has as many parameters as 4 d_model without a gate
  bool bias = false;
  double dropout = 0;
  double init_std = kInitStd, output_init_std = kInitStd;
  template <class V>
  void visit(V&) {}  // the model sets all of them
};

class SwiGLU final : public Layer {
 public:
  SwiGLU(Module* parent, std::string name, const SwiGLUConfig& c)
      : Layer(parent, std::move(name)),
        width_(c.d_hidden ? c.d_hidden : 8 * c.d_model / 3),
        gate{this, "gate", {.in = c.d_model, .out = width_, .bias = c.bias, .init_std = c.init_std}},
        up{this, "up", {.in = c.d_model, .out = width_, .bias = c.bias, .init_std = c.init_std}},
        down{this, "down", {.in = width_, .out = c.d_model, .bias = c.bias, .init_std = c.output_init_std}},
        dropout{this, "dropout", {.p = c.dropout}} {}

 protected:
  Tensor forward(const Tensor& x, Context& context) override {  // (...,C) -> (...,C)
    return dropout(down(mul(silu(gate(x, context)), up(x, context)), context), context);
  }

 private:
  int64_t width_;

 public:
  Linear gate, up, down;
  Dropout dropout;
};

}  // namespace bonsai
