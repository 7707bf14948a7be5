// LayerNorm over the last axis.                              Ba, Kiros & Hinton 2016, arXiv:1607.06450
#pragma once

#include "bonsai/framework/ops/ops.h"
#include "bonsai/layers/registry.h"

namespace bonsai {

struct LayerNormConfig {
  int64_t width = 1;
  double eps = 1e-5;
  bool bias = true;
  template <class V>
  void visit(V& v) {
    v("width", width, "size of the last axis", at_least(1));
    v("eps", eps, "added to the variance, inside the root", at_least(0));
    v("bias", bias, "whether to add a bias");
  }
};

class LayerNorm final : public Layer {
 public:
  LayerNorm(Module* parent, std::string name, const LayerNormConfig& c)
      : Layer(parent, std::move(name)), eps_(c.eps) {
    check_config(path(), c);
    weight = &add_parameter("weight", {c.width}, constant(1), Decay::no);
    if (c.bias) bias = &add_parameter("bias", {c.width}, constant(0), Decay::no);
  }

  Parameter* weight = nullptr;
  Parameter* bias = nullptr;  // null if the config has no bias

 protected:
  Tensor forward(const Tensor& x, Context&) override {  // (...,width) -> (...,width)
    return layer_norm(x, weight->value, bias ? bias->value : Tensor(), eps_);
  }

 private:
  double eps_;
};

}  // namespace bonsai
