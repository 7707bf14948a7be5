// Sinusoidal position embedding.                                       Vaswani et al. 2017, arXiv:1706.03762
#pragma once

#include "bonsai/layers/position/added.h"

namespace bonsai {

// Columns 2j and 2j+1 are the sine and cosine of position * 10000^(-2j / width). The table grows as positions
// are used, because block_size may be larger than memory allows.
class SinusoidalPositions final : public AddedPositions {
 public:
  SinusoidalPositions(Module* parent, std::string name, const PositionConfig& c)
      : AddedPositions(parent, std::move(name), c), config_(c) {}

 protected:
  const Tensor& table(int64_t rows) override;

 private:
  Tensor made(int64_t rows) const;

  PositionConfig config_;
  Tensor table_;
};

}  // namespace bonsai
