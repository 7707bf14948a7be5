// The default feed-forward layer: down(activation(up(x))).             Vaswani et al. 2017, arXiv:1706.03762
#pragma once

#include "bonsai/layers/dropout.h"
#include "bonsai/layers/linear.h"
#include "bonsai/layers/registry.h"

namespace bonsai {

// Activations are elementwise ops (framework/backend/elementwise_list.h): all names, and the op with a name.
OneOf activations();
Tensor (*activation_named(const std::string& name))(const Tensor&);

struct FeedForwardConfig {
  int64_t d_model = 1;
  int64_t d_hidden = 0;
  std::string activation = "gelu_tanh";
  bool bias = true;
  double dropout = 0;
  double init_std = kInitStd;
  double output_init_std = kInitStd;
  template <class V>
  void visit(V& v) {
    v("d_model", d_model, "width of the residual stream", at_least(1));
    v("d_hidden", d_hidden, "width of the hidden layer; 0 chooses 4 * d_model", at_least(0));
    visit_keys(v);
    v("bias", bias, "biases of both projections");
    v("dropout", dropout, "dropout of the output", between(0, 1));
    v("init_std", init_std, "standard deviation of the initial weights of `up`", at_least(0));
    v("output_init_std", output_init_std, "standard deviation of the initial weights of `down`", at_least(0));
  }
  template <class V>
  void visit_keys(V& v) {  // keys that the model does not set
    v("activation", activation, "function between the two projections", activations());
  }
};

class FeedForward final : public Layer {
 public:
  FeedForward(Module* parent, std::string name, const FeedForwardConfig& c);

 protected:
  Tensor forward(const Tensor& x, Context& context) override {  // (...,C) -> (...,C)
    return dropout(down(activation_(up(x, context)), context), context);
  }

 private:
  Tensor (*activation_)(const Tensor&);

 public:
  Linear up, down;
  Dropout dropout;
};

}  // namespace bonsai
