// Normalisation of the last axis: LayerNorm and RMSNorm.
#pragma once

#include <memory>

#include "bonsai/framework/config/visit.h"
#include "bonsai/framework/ops/ops.h"
#include "bonsai/layers/module.h"

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
  LayerNorm(Module* parent, std::string name, const LayerNormConfig& c) : Layer(parent, std::move(name)), eps_(c.eps) {
    check_config(path(), c);
    weight = &add_parameter("weight", {c.width}, constant(1), Decay::no);
    if (c.bias) bias = &add_parameter("bias", {c.width}, constant(0), Decay::no);
  }

  Parameter* weight = nullptr;
  Parameter* bias = nullptr;  // or null

 protected:
  Tensor forward(const Tensor& x, Context&) override {  // (...,width) -> (...,width)
    return layer_norm(x, weight->value, bias ? bias->value : Tensor(), eps_);
  }

 private:
  double eps_;
};

struct RMSNormConfig {
  int64_t width = 1;
  double eps = 1e-6;
  template <class V>
  void visit(V& v) {
    v("width", width, "size of the last axis", at_least(1));
    v("eps", eps, "added to the mean square, inside the root", at_least(0));
  }
};

class RMSNorm final : public Layer {
 public:
  RMSNorm(Module* parent, std::string name, const RMSNormConfig& c) : Layer(parent, std::move(name)), eps_(c.eps) {
    check_config(path(), c);
    weight = &add_parameter("weight", {c.width}, constant(1), Decay::no);
  }

  Parameter* weight = nullptr;

 protected:
  Tensor forward(const Tensor& x, Context&) override {  // (...,width) -> (...,width)
    return rms_norm(x, weight->value, eps_);
  }

 private:
  double eps_;
};

// The norm that a config names: "layer_norm" or "rms_norm".
inline std::unique_ptr<Layer> make_norm(Module* parent, std::string name, const std::string& kind,
                                        int64_t width, double eps, bool bias) {
  if (kind == "rms_norm")
    return std::make_unique<RMSNorm>(parent, std::move(name), RMSNormConfig{.width = width, .eps = eps});
  check(kind == "layer_norm", "norm", "there is no norm '{}'; use layer_norm or rms_norm", kind);
  return std::make_unique<LayerNorm>(parent, std::move(name), LayerNormConfig{.width = width, .eps = eps, .bias = bias});
}

}  // namespace bonsai
