// Learned position embedding: a trained vector per position.           Radford et al. 2018 (GPT)
#pragma once

#include "bonsai/layers/position/added.h"

namespace bonsai {

class LearnedPositions final : public AddedPositions {
 public:
  LearnedPositions(Module* parent, std::string name, const PositionConfig& c)
      : AddedPositions(parent, std::move(name), c),
        weight(&add_parameter("weight", {c.block_size, c.width}, normal(c.init_std), Decay::yes)) {}

  Parameter* weight;  // (block_size, width)

 protected:
  const Tensor& table(int64_t) override { return weight->value; }
};

}  // namespace bonsai
