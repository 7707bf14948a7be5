// The strides of a broadcasting kernel's operands along the axes of its output.
#pragma once

#include "bonsai/framework/core/level.h"
#include "bonsai/framework/core/shape.h"

namespace bonsai {
inline namespace BONSAI_LEVEL {

// The output's axes: those of size 1 are dropped and those contiguous in every operand are merged; at least
// one remains.
struct Layout {
  int rank = 0;
  int64_t dim[kMaxRank] = {};
  int64_t step[3][kMaxRank] = {};  // per operand; 0 along an axis that it is broadcast over
};

// Not inlined: g++ 12 would warn that its callers' shapes are uninitialised.
[[gnu::noinline]] inline Layout layout_of(const Shape& out, const Shape* const (&in)[3]) {
  Layout l;
  for (int axis = 0; axis < out.rank; ++axis) {
    if (out.dim[axis] == 1) continue;
    int64_t step[3];
    for (int k = 0; k < 3; ++k) {
      const int own = axis - (out.rank - in[k]->rank);
      int64_t inner = 1;
      for (int i = own + 1; own >= 0 && i < in[k]->rank; ++i) inner *= in[k]->dim[i];
      step[k] = own < 0 || in[k]->dim[own] == 1 ? 0 : inner;
    }
    bool merges = l.rank > 0;
    for (int k = 0; k < 3 && merges; ++k)
      merges = l.step[k][l.rank - 1] == step[k] * out.dim[axis];
    if (!merges) l.dim[l.rank++] = 1;
    l.dim[l.rank - 1] *= out.dim[axis];
    for (int k = 0; k < 3; ++k) l.step[k][l.rank - 1] = step[k];
  }
  if (l.rank == 0) l.dim[l.rank++] = 1;
  return l;
}

}  // namespace BONSAI_LEVEL
}  // namespace bonsai
