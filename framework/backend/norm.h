// What the norms keep of a row for their gradients, on every device. A row whose squares leave the range of its
// type is multiplied by a power of two first: mean and root are those of the scaled row.
#pragma once

#include <concepts>

#include "bonsai/framework/core/level.h"

namespace bonsai {

template <class T>
struct LayerNormStats {
  T mean, rstd, scale;  // mean: less the first element; rstd: the root, 1 / sqrt(variance + eps)
};
template <class T>
struct RmsNormStats {
  T r, scale;  // r: the root, 1 / sqrt(mean square + eps)
};

inline namespace BONSAI_LEVEL {

// The scale of a row whose root would be this: 1, unless squares overflow or lose digits to underflow.
template <std::floating_point T>
constexpr T row_scale(T root) {
  constexpr bool single = std::same_as<T, float>;
  constexpr T high = static_cast<T>(single ? 0x1p50 : 0x1p450);
  constexpr T factor = static_cast<T>(single ? 0x1p96 : 0x1p600);
  if (root >= 1 / high && root <= high) return 1;
  return root > high ? factor : 1 / factor;
}

}  // namespace BONSAI_LEVEL
}  // namespace bonsai
