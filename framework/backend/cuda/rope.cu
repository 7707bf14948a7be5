// Rotary position embedding: rotates pairs of a row's elements by angles that depend on its position. A block
// handles all heads of a position.
#include "bonsai/framework/backend/cuda/loops.h"

namespace bonsai::cuda::BONSAI_LEVEL {
namespace {

// (a, b) = (u c - v s, v c + u s); y may be x.
__global__ void turn(const real* x, const real* table, int64_t time, int64_t heads, int64_t width,
                     bool interleaved, bool back, real* y) {
  const int64_t position = blockIdx.x, pairs = width / 2;
  const real* angle = table + position % time * width;
  for (int64_t i = threadIdx.x; i < heads * pairs; i += blockDim.x) {
    const int64_t head = i / pairs, j = i - head * pairs, start = (position * heads + head) * width;
    const int64_t a = start + (interleaved ? 2 * j : j), b = interleaved ? a + 1 : a + pairs;
    const real c = angle[2 * j], s = back ? -angle[2 * j + 1] : angle[2 * j + 1], u = x[a], v = x[b];
    y[a] = u * c - v * s;
    y[b] = v * c + u * s;
  }
}

}  // namespace

void rope(View x, View table, bool interleaved, bool back, MutView y) {
  const int64_t time = x.shape.dim[1], heads = x.shape.dim[2], width = x.shape.dim[3];
  launch_rows(x.shape.dim[0] * time, turn, x.as<real>(), table.as<real>(), time, heads, width, interleaved,
              back, y.as<real>());
}

}  // namespace bonsai::cuda::BONSAI_LEVEL
