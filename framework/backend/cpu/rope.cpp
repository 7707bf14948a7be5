// Rotary position embedding: rotates pairs of a row's elements by angles that depend on its position.
#include "bonsai/framework/backend/cpu/loops.h"

namespace bonsai::cpu::BONSAI_LEVEL {

void rope(View x, View table, bool interleaved, bool back, MutView y) {
  const int64_t time = x.shape.dim[1], heads = x.shape.dim[2], width = x.shape.dim[3], pairs = width / 2;
  for_rows(x.shape.dim[0] * time * heads, width, [&](int64_t row) {
    const real* in = x.as<real>() + row * width;
    const real* angle = table.as<real>() + row / heads % time * width;
    real* out = y.as<real>() + row * width;
    for (int64_t j = 0; j < pairs; ++j) {
      const int64_t a = interleaved ? 2 * j : j, b = interleaved ? 2 * j + 1 : j + pairs;
      const real c = angle[2 * j], s = back ? -angle[2 * j + 1] : angle[2 * j + 1], u = in[a], v = in[b];
      out[a] = u * c - v * s;
      out[b] = v * c + u * s;
    }
  });
}

}  // namespace bonsai::cpu::BONSAI_LEVEL
