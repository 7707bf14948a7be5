// The common structure of encoders and decoders: token and position embedding, blocks, final norm.
#pragma once

#include <deque>

#include "bonsai/layers/block.h"
#include "bonsai/layers/dropout.h"
#include "bonsai/layers/embedding.h"

namespace bonsai {

struct StackConfig {
  int64_t block_size = 64;
  int64_t n_layers = 1;
  Choice<PositionKind> position = "none";
  double dropout = 0;  // applied to the sum of token and position embeddings
  BlockConfig block;
};

class Stack final : public Module {
 public:
  Stack(Module* parent, std::string name, const StackConfig& c);
  ~Stack() override {
    while (!blocks_.empty()) blocks_.pop_back();  // in reverse order: ~Module searches from the end
  }

  Tensor embed(Embedding& token, const Tensor& ids, Context& context);  // i32 (B,T) -> (B,T,C)
  Tensor trunk(const Tensor& x, Context& context);                      // (B,T,C) -> (B,T,C), normalised

  std::deque<Block>& blocks() { return blocks_; }
  const std::deque<Block>& blocks() const { return blocks_; }

 private:
  int64_t block_size_;
  std::unique_ptr<Position> position_;
  Dropout dropout_;
  std::deque<Block> blocks_;
  std::unique_ptr<Layer> norm_;
};

}  // namespace bonsai
