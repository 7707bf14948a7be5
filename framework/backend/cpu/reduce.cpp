// Reductions of the middle axis of (outer, n, inner). Long sums are split into chunks of fixed size.
#include "bonsai/framework/backend/cpu/loops.h"

namespace bonsai::cpu::BONSAI_LEVEL {
namespace {

// The sum of a row; a long row is summed in chunks of kGrain elements, which are added in order.
real long_sum(const real* x, int64_t n) {
  if (n <= kGrain) return sum_of(x, n);
  const int64_t tiles = tiles_of(n, kGrain);
  Scratch partial(tiles);
  run_tiles(tiles, [&](int64_t t) {
    partial.data()[t] = sum_of(x + t * kGrain, smaller(kGrain, n - t * kGrain));
  });
  return sum_of(partial.data(), tiles);
}

}  // namespace

void sum(View x, double factor, MutView y) {
  const int64_t outer = x.shape.dim[0], n = x.shape.dim[1], inner = x.shape.dim[2];
  const real* in = x.as<real>();
  real* out = y.as<real>();
  const real f = static_cast<real>(factor);
  if (inner == 1 && outer == 1) {
    out[0] = f * long_sum(in, n);
  } else if (inner == 1) {
    for_rows(outer, n, [&](int64_t o) { out[o] = f * sum_of(in + o * n, n); });
  } else if (outer == 1) {
    sum_over_rows(n, inner, inner, out, false, [&](int64_t row, real* sums) {
      for (int64_t i = 0; i < inner; ++i) sums[i] += f * in[row * inner + i];
    });
  } else {
    for_rows(outer, n * inner, [&](int64_t o) {
      fill(out + o * inner, inner, 0);
      for (int64_t k = 0; k < n; ++k)
        for (int64_t i = 0; i < inner; ++i)
          out[o * inner + i] += f * in[(o * n + k) * inner + i];
    });
  }
}

void column_sums(View x, GradView y) {
  const int64_t n = x.shape[-1];
  sum_over_rows(x.shape.rows(), n, n, y.as<real>(), y.add, [&](int64_t row, real* sums) {
    const real* in = x.as<real>() + row * n;
    for (int64_t i = 0; i < n; ++i) sums[i] += in[i];
  });
}

void max(View x, MutView y) {
  const int64_t outer = x.shape.dim[0], n = x.shape.dim[1], inner = x.shape.dim[2];
  for_rows(outer, n * inner, [&](int64_t o) {
    const real* in = x.as<real>() + o * n * inner;
    real* out = y.as<real>() + o * inner;
    for (int64_t i = 0; i < inner; ++i) out[i] = in[i];
    for (int64_t k = 1; k < n; ++k)
      for (int64_t i = 0; i < inner; ++i) {
        const real v = in[k * inner + i];
        out[i] = v > out[i] || v != v ? v : out[i];  // NaN propagates
      }
  });
}

void max_backward(View x, View y, View dy, MutView dx) {
  const int64_t outer = x.shape.dim[0], n = x.shape.dim[1], inner = x.shape.dim[2];
  for_rows(outer, n * inner, [&](int64_t o) {
    const real* in = x.as<real>() + o * n * inner;
    real* out = dx.as<real>() + o * n * inner;
    for (int64_t i = 0; i < inner; ++i) {
      const real top = y.as<real>()[o * inner + i];
      int64_t ties = 0;
      for (int64_t k = 0; k < n; ++k) ties += in[k * inner + i] == top;
      const real share = dy.as<real>()[o * inner + i] / static_cast<real>(larger(1, ties));
      for (int64_t k = 0; k < n; ++k)
        out[k * inner + i] = in[k * inner + i] == top ? share : real(0);
    }
  });
}

void argmax(View x, MutView y) {
  const int64_t outer = x.shape.dim[0], n = x.shape.dim[1], inner = x.shape.dim[2];
  for_rows(outer * inner, n, [&](int64_t line) {
    const real* in = x.as<real>() + line / inner * n * inner + line % inner;
    int64_t top = 0;
    for (int64_t k = 1; k < n; ++k) {
      const real v = in[k * inner], best = in[top * inner];
      if (v > best || (v != v && best == best)) top = k;
    }
    y.as<int32_t>()[line] = static_cast<int32_t>(top);
  });
}

void cumulative_sum(View x, bool reverse, MutView y) {
  const int64_t outer = x.shape.dim[0], n = x.shape.dim[1], inner = x.shape.dim[2];
  for_rows(outer * inner, n, [&](int64_t line) {
    const int64_t start = line / inner * n * inner + line % inner;
    real sum = 0;
    for (int64_t k = 0; k < n; ++k) {
      const int64_t at = start + (reverse ? n - 1 - k : k) * inner;
      y.as<real>()[at] = sum += x.as<real>()[at];
    }
  });
}

}  // namespace bonsai::cpu::BONSAI_LEVEL
