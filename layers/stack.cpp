#include "bonsai/layers/stack.h"

#include "bonsai/framework/ops/axes.h"

namespace bonsai {

Stack::Stack(Module* parent, std::string name, const StackConfig& c)
    : Module(parent, std::move(name)),
      block_size_(c.block_size),
      position_(c.position.make(this, "position",
                                PositionContext{.block_size = c.block_size,
                                                .width = c.block.context.d_model,
                                                .init_std = c.block.context.init_std})),
      dropout_{this, "dropout", {.p = c.dropout}} {
  BlockConfig block = c.block;
  block.context.position = position_->is_added() ? nullptr : position_.get();
  for (int64_t i = 0; i < c.n_layers; ++i) blocks_.emplace_back(this, "block." + std::to_string(i), block);
  norm_ = c.block.norm.make(this, "norm", c.block.context);
}

Tensor Stack::embed(Embedding& token, const Tensor& ids, Context& context) {
  PathScope scope(path());
  check_axes("tokens", "ids", ids, "(batch,time)");
  check(context.first_position + ids.size(1) <= block_size_, "tokens",
        "{} tokens from position {} exceed block_size {}", ids.size(1), context.first_position, block_size_);
  const Tensor x = token(ids, context);
  return dropout_((*position_)(x, context), context);
}

Tensor Stack::trunk(const Tensor& x, Context& context) {
  PathScope scope(path());
  Tensor h = x;
  for (Block& block : blocks_) h = block(h, context);
  return (*norm_)(h, context);
}

}  // namespace bonsai
