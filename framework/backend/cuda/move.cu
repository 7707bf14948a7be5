// Kernels that move elements: permute, and copies of blocks for slice, concat and their gradients.
#include "bonsai/framework/backend/cuda/loops.h"

namespace bonsai::cuda::BONSAI_LEVEL {
namespace {

struct Steps {
  int rank;
  int64_t dim[kMaxRank], step[kMaxRank];  // y's sizes, and x's strides along y's axes
};

__global__ void gather_by_steps(const real* x, real* y, int64_t n, Steps s) {
  const int64_t i = element();
  if (i >= n) return;
  int64_t at = 0, rest = i;
  for (int axis = s.rank - 1; axis >= 0; --axis) {
    at += rest % s.dim[axis] * s.step[axis];
    rest /= s.dim[axis];
  }
  y[i] = x[at];
}

__global__ void copy_rows(const real* src, real* dst, int64_t n, int64_t inner, int64_t src_stride,
                          int64_t dst_stride, bool add) {
  const int64_t i = element();
  if (i >= n) return;
  const int64_t row = i / inner, column = i % inner;
  const real x = src[row * src_stride + column];
  real& y = dst[row * dst_stride + column];
  y = add ? y + x : x;
}

}  // namespace

void permute(View x, kernel::Axes axes, MutView y) {
  Steps s{x.shape.rank, {}, {}};
  for (int i = 0; i < s.rank; ++i) {
    s.dim[i] = y.shape.dim[i];
    s.step[i] = 1;
    for (int j = axes.axis[i] + 1; j < s.rank; ++j) s.step[i] *= x.shape.dim[j];
  }
  const int64_t n = y.shape.elements();
  launch_elements(n, gather_by_steps, x.as<real>(), y.as<real>(), n, s);
}

void copy_blocks(const kernel::Blocks& b) {
  const int64_t n = b.outer * b.inner;
  launch_elements(n, copy_rows, static_cast<const real*>(b.src), static_cast<real*>(b.dst), n, b.inner,
                  b.src_stride, b.dst_stride, b.add);
}

}  // namespace bonsai::cuda::BONSAI_LEVEL
