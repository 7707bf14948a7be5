// In training, zeroes each element with probability p and scales the others by 1 / (1 - p).
//                                                                      Srivastava et al. 2014
#pragma once

#include "bonsai/framework/config/visit.h"
#include "bonsai/framework/ops/ops.h"
#include "bonsai/layers/module.h"

namespace bonsai {

struct DropoutConfig {
  double p = 0;
  template <class V>
  void visit(V& v) {
    v("dropout", p, "probability of zeroing an element", between(0, 1));
  }
};

class Dropout final : public Layer {
 public:
  Dropout(Module* parent, std::string name, const DropoutConfig& c)
      : Layer(parent, std::move(name)), p_(c.p) {
    check_config(path(), c);
  }

 protected:
  // Draws no random numbers when there is nothing to drop.
  Tensor forward(const Tensor& x, Context& context) override {
    return context.training && p_ > 0 ? dropout(x, p_, context.random.draw(path())) : x;
  }

 private:
  double p_;
};

}  // namespace bonsai
