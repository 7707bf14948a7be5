#include "bonsai/layers/position/rope.h"

namespace bonsai {

Tensor Rope::turned(const Tensor& x, int64_t n_heads, int64_t first) const {
  return rope(x, {.n_heads = n_heads, .first = first, .theta = theta_, .interleaved = interleaved_});
}

void register_rope() {
  add_part<PositionKind, Rope, RopeConfig>("rope");
  add_part<PositionKind, Rope, InterleavedRopeConfig>("rope_interleaved");
}

}  // namespace bonsai
