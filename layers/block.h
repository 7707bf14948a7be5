// A transformer block with the norms before the sublayers.        Radford et al. 2019 (GPT-2)
//   x = x + attention(norm(x));  x = x + feed_forward(norm(x))
#pragma once

#include "layers/attention.h"
#include "layers/mlp.h"
#include "layers/norm.h"
#include "layers/registry.h"

namespace bonsai {

struct BlockConfig {
  MultiHeadAttentionConfig attention;
  FeedForwardConfig mlp;
  std::shared_ptr<const FeedForwardKeys> other_mlp = {};  // a layer that stands in its place
  std::string norm = "layer_norm";
  double norm_eps = 1e-5;
  bool norm_bias = true;
};

class Block final : public Layer {
 public:
  Block(Module* parent, std::string name, const BlockConfig& c)
      : Layer(parent, std::move(name)),
        norm_1_(make_norm(this, "norm_1", c.norm, c.attention.d_model, c.norm_eps, c.norm_bias)),
        attention{this, "attention", c.attention},
        norm_2_(make_norm(this, "norm_2", c.norm, c.attention.d_model, c.norm_eps, c.norm_bias)),
        mlp(c.other_mlp ? c.other_mlp->make(this, "mlp", c.mlp) : std::make_unique<FeedForward>(this, "mlp", c.mlp)) {}

 protected:
  Tensor forward(const Tensor& x, Context& context) override {  // (B,T,C) -> (B,T,C)
    const Tensor n = (*norm_1_)(x, context);
    const Tensor h = add(x, attention(n, n, n, context));
    return add(h, (*mlp)((*norm_2_)(h, context), context));
  }

 private:
  std::unique_ptr<Layer> norm_1_;

 public:
  MultiHeadAttention attention;

 private:
  std::unique_ptr<Layer> norm_2_;

 public:
  std::unique_ptr<Layer> mlp;
};

}  // namespace bonsai
