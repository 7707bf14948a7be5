// Elements of one axis by index, and the scatter-add that is its gradient: all of (outer, axis, inner).
#include "bonsai/framework/backend/cuda/loops.h"

namespace bonsai::cuda::BONSAI_LEVEL {
namespace {

// Sizes of an index (outer, m, inner) into an axis of n.
struct Sizes {
  int64_t outer, m, inner, n;

  __device__ bool known(int64_t k) const { return k >= 0 && k < n; }
};

__global__ void gather_elements(const real* x, const int32_t* index, Sizes s, real* y,
                                IndexError* index_error) {
  const int64_t at = element();
  if (at >= s.outer * s.m * s.inner) return;
  const int64_t k = index[at];
  if (!s.known(k)) report_index_error(index_error, 2, at, k, s.n);
  y[at] = s.known(k) ? x[(at / (s.m * s.inner) * s.n + k) * s.inner + at % s.inner]
                     : std::numeric_limits<real>::quiet_NaN();
}

// One thread per line, in order: an index that comes twice adds twice, without atomics.
__global__ void scatter_lines(const int32_t* index, const real* y, Sizes s, real* x,
                              IndexError* index_error) {
  const int64_t line = element();
  if (line >= s.outer * s.inner) return;
  const int64_t outer = line / s.inner, i = line % s.inner;
  for (int64_t row = 0; row < s.m; ++row) {
    const int64_t at = (outer * s.m + row) * s.inner + i, k = index[at];
    if (s.known(k))
      x[(outer * s.n + k) * s.inner + i] += y[at];
    else
      report_index_error(index_error, 3, at, k, s.n);
  }
}

Sizes sizes_of(View index, const Shape& x) {
  return {index.shape.dim[0], index.shape.dim[1], index.shape.dim[2], x.dim[1]};
}

}  // namespace

void gather(View x, View index, MutView y, IndexError* index_error) {
  launch_elements(index.shape.elements(), gather_elements, x.as<real>(), index.as<int32_t>(),
                  sizes_of(index, x.shape), y.as<real>(), index_error);
}

void scatter_add(View index, View y, MutView x, IndexError* index_error) {
  const Sizes s = sizes_of(index, x.shape);
  launch_elements(s.outer * s.inner, scatter_lines, index.as<int32_t>(), y.as<real>(), s, x.as<real>(),
                  index_error);
}

}  // namespace bonsai::cuda::BONSAI_LEVEL
