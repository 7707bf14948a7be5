// The statistics of a row that the norms save for their backward passes, on every device. If the squares of a
// row would overflow or underflow, the row is first multiplied by a power of two, `scale`, and the other
// statistics are those of the scaled row.
#pragma once

#include <concepts>

#include "bonsai/framework/core/level.h"

namespace bonsai {

template <class T>
struct LayerNormStats {
  T mean, rstd, scale;  // mean - first element; 1 / sqrt(variance + scale^2 eps)
};
template <class T>
struct RmsNormStats {
  T r, scale;  // 1 / sqrt(mean square + scale^2 eps)
};

inline namespace BONSAI_LEVEL {

// The scale for a row whose unscaled reciprocal standard deviation is `root`: 1 unless its squares overflow,
// or lose digits by underflow.
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
