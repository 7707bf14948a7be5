// RMSNorm over the last axis.                                Zhang & Sennrich 2019, arXiv:1910.07467
#pragma once

#include "bonsai/framework/ops/ops.h"
#include "bonsai/layers/registry.h"

namespace bonsai {

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
  RMSNorm(Module* parent, std::string name, const RMSNormConfig& c)
      : Layer(parent, std::move(name)), eps_(c.eps) {
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

}  // namespace bonsai
