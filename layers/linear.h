// y = x W^T + b
#pragma once

#include "bonsai/framework/config/visit.h"
#include "bonsai/framework/ops/ops.h"
#include "bonsai/layers/module.h"

namespace bonsai {

// `part` selects the shard of a rank. Along axis 0 it has some rows of the weight, thus some of the outputs.
// Along axis 1 it has some columns, thus some of the inputs; the outputs of all parts are to be added up, and
// only the first part has the bias.
struct LinearConfig {
  int64_t in = 1;
  int64_t out = 1;
  bool bias = true;
  double init_std = kInitStd;
  Part part = {};
  template <class V>
  void visit(V& v) {
    v("in", in, "width of the input", at_least(1));
    v("out", out, "width of the output", at_least(1));
    v("bias", bias, "whether to add a bias");
    v("init_std", init_std, "standard deviation of the initial weights", at_least(0));
  }
};

class Linear final : public Layer {
 public:
  Linear(Module* parent, std::string name, const LinearConfig& c) : Layer(parent, std::move(name)) {
    check_config(path(), c);
    weight = &add_parameter("weight", {c.out, c.in}, normal(c.init_std), Decay::yes, c.part);
    const bool columns = c.part.axis == 1;
    if (c.bias && !(columns && c.part.index > 0))
      bias = &add_parameter("bias", {c.out}, constant(0), Decay::no, columns ? Part{} : c.part);
  }

  Parameter* weight = nullptr;  // (out, in)
  Parameter* bias = nullptr;    // (out), or null

 protected:
  Tensor forward(const Tensor& x, Context&) override {  // (...,in) -> (...,out)
    return linear(x, weight->value, bias ? bias->value : Tensor());
  }
};

}  // namespace bonsai
