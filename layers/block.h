// A pre-norm transformer block.                                    Radford et al. 2019 (GPT-2)
//   x = x + attention(norm(x));  x = x + feed_forward(norm(x))
// The decoder of an encoder-decoder also has cross-attention between the two:
//   x = x + cross_attention(norm(x), source)                         Vaswani et al. 2017
#pragma once

#include "bonsai/framework/ops/ops.h"
#include "bonsai/layers/registry.h"

namespace bonsai {

struct BlockConfig {
  Choice<AttentionKind> attention = {};
  bool cross = false;  // adds cross-attention to context.source, without causal mask, window or positions
  Choice<FeedForwardKind> mlp = {};
  Choice<NormKind> norm = {};
  BlockContext context = {};
};

class Block final : public Layer {
 public:
  Block(Module* parent, std::string name, const BlockConfig& c)
      : Layer(parent, std::move(name)),
        norm_1(c.norm.make(this, "norm_1", c.context)),
        attention(c.attention.make(this, "attention", c.context)),
        cross_norm(c.cross ? c.norm.make(this, "cross_norm", c.context) : nullptr),
        cross_attention(c.cross ? c.attention.make(this, "cross_attention", to_source(c.context)) : nullptr),
        norm_2(c.norm.make(this, "norm_2", c.context)),
        mlp(c.mlp.make(this, "mlp", c.context)) {}

  std::unique_ptr<Layer> norm_1;
  std::unique_ptr<AttentionLayer> attention;
  std::unique_ptr<Layer> cross_norm;                // null without cross-attention
  std::unique_ptr<AttentionLayer> cross_attention;  // null without cross-attention
  std::unique_ptr<Layer> norm_2;
  std::unique_ptr<Layer> mlp;

 protected:
  Tensor forward(const Tensor& x, Context& context) override {  // (B,T,C) -> (B,T,C)
    const Tensor n = (*norm_1)(x, context);
    Tensor h = add(x, (*attention)(n, n, n, context));
    if (cross_attention) {
      const Tensor& source = context.source.features;
      check(static_cast<bool>(source), "block",
            "attends to a source, but context.source.features is undefined");
      h = add(h, (*cross_attention)((*cross_norm)(h, context), source, source, context));
    }
    return add(h, (*mlp)((*norm_2)(h, context), context));
  }

 private:
  static BlockContext to_source(BlockContext c) {
    c.cross = true, c.causal = false, c.position = nullptr;
    return c;
  }
};

}  // namespace bonsai
