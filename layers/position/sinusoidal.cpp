#include "bonsai/layers/position/sinusoidal.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace bonsai {

const Tensor& SinusoidalPositions::table(int64_t rows) {
  if (!table_ || table_.size(0) < rows) {
    const auto grown = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(rows)));
    table_ = made(std::min(config_.block_size, grown));
  }
  return table_;
}

Tensor SinusoidalPositions::made(int64_t rows) const {
  std::vector<double> values;
  for (int64_t t = 0; t < rows; ++t)
    for (int64_t i = 0; i < config_.width; ++i) {
      const double pair = static_cast<double>(i / 2 * 2);
      const double angle =
          static_cast<double>(t) * std::pow(10000.0, -pair / static_cast<double>(config_.width));
      values.push_back(i % 2 == 0 ? std::sin(angle) : std::cos(angle));
    }
  return tensor({rows, config_.width}, values, build().dtype, build().device);
}

void register_sinusoidal() {
  add_part<PositionKind, SinusoidalPositions, Keys<PositionConfig>>("sinusoidal");
}

}  // namespace bonsai
