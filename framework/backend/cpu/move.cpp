// Kernels that move elements: permute, and copies of blocks for slice, concat and their gradients.
#include "bonsai/framework/backend/cpu/loops.h"

namespace bonsai::cpu::BONSAI_LEVEL {

void permute(View x, kernel::Axes axes, MutView y) {
  const int rank = x.shape.rank;
  if (rank == 0) {
    y.as<real>()[0] = x.as<real>()[0];
    return;
  }
  int64_t step[kMaxRank];  // strides of x along y's axes
  for (int i = 0; i < rank; ++i) {
    step[i] = 1;
    for (int j = axes.axis[i] + 1; j < rank; ++j) step[i] *= x.shape.dim[j];
  }
  const int64_t n = y.shape[-1];
  for_rows(y.shape.rows(), n, [&](int64_t row) {
    int64_t rest = row;
    const real* in = x.as<real>();
    for (int i = rank - 2; i >= 0; --i) {
      in += rest % y.shape.dim[i] * step[i];
      rest /= y.shape.dim[i];
    }
    real* out = y.as<real>() + row * n;
    const int64_t s = step[rank - 1];
    for (int64_t i = 0; i < n; ++i) out[i] = in[i * s];
  });
}

void copy_blocks(const kernel::Blocks& b) {
  const auto copy = [&](int64_t row, int64_t begin, int64_t end) {
    const real* in = static_cast<const real*>(b.src) + row * b.src_stride;
    real* out = static_cast<real*>(b.dst) + row * b.dst_stride;
    for (int64_t i = begin; i < end; ++i) out[i] = b.add ? out[i] + in[i] : in[i];
  };
  if (b.outer == 1)
    for_ranges(b.inner, kGrain, [&](int64_t begin, int64_t end) { copy(0, begin, end); });
  else
    for_rows(b.outer, b.inner, [&](int64_t row) { copy(row, 0, b.inner); });
}

}  // namespace bonsai::cpu::BONSAI_LEVEL
