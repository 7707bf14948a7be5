// An encoder maps token ids to features. Tokens attend to each other, except to padding and other segments.
#pragma once

#include "bonsai/layers/stack.h"

namespace bonsai {

// The caller owns the token table, because encoder and decoder share it.
class Encoder final : public Layer {
 public:
  Encoder(Module* parent, std::string name, Embedding& token, const StackConfig& c)
      : Layer(parent, std::move(name)), token_(token), stack_(this, "", c) {
    check(!c.block.context.causal && !c.block.cross, path(),
          "an encoder is neither causal nor attends to a source");
  }

  // forward is these two in turn: i32 (B,S) -> (B,S,C) -> (B,S,C).
  Tensor embed(const Tensor& ids, Context& context) { return stack_.embed(token_, ids, context); }
  Tensor trunk(const Tensor& x, Context& context) { return stack_.trunk(x, context); }

 protected:
  Tensor forward(const Tensor& ids, Context& context) override { return trunk(embed(ids, context), context); }

 private:
  Embedding& token_;
  Stack stack_;
};

}  // namespace bonsai
