// Sums over rows, column by column: gradients of norms and biases, reductions of an axis that is not the last. Parts of
// kPartRows rows are summed side by side, then the parts' sums in order.
#pragma once

#include "bonsai/framework/backend/cuda/loops.h"

namespace bonsai::cuda::BONSAI_LEVEL {

inline constexpr int64_t kPartRows = 128;

// Where up to two sums a column go; null: not wanted.
struct Columns {
  real* y[2];
  bool add[2];
};

// Terms: kSums sums a column; (row, column, sums) adds a row's terms to them.
struct Element {
  static constexpr int kSums = 1;
  const real* x;
  int64_t n;
  real factor;
  __device__ void operator()(int64_t row, int64_t column, real* sums) const { sums[0] += factor * x[row * n + column]; }
};

// A block has 32 columns of a part of `part` rows of one of the groups of `rows` rows: its warps share the part's rows,
// then the warps' sums are added in order.
template <class Terms>
__global__ void add_part(Terms terms, int64_t rows, int64_t n, int64_t part, int64_t parts, Columns out) {
  constexpr int kWarps = kBlock / kWarp;
  GPU_SHARED(real, of_warp, [Terms::kSums][kWarps][kWarp]);
  const int64_t blocks = (n + kWarp - 1) / kWarp, at = blockIdx.x / blocks;
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t column = blockIdx.x % blocks * kWarp + lane, first = at / parts * rows;
  const int64_t begin = at % parts * part, end = begin + part < rows ? begin + part : rows;
  real sums[Terms::kSums] = {};
  if (column < n)
    for (int64_t row = begin + warp; row < end; row += kWarps) terms(first + row, column, sums);
  for (int k = 0; k < Terms::kSums; ++k) of_warp[k][warp][lane] = sums[k];
  __syncthreads();
  real* const to = warp == 0 ? out.y[0] : out.y[1];  // not out.y[warp]: indexing moves arguments to local memory
  if (warp >= Terms::kSums || column >= n || !to) return;
  real total = 0;
  for (int w = 0; w < kWarps; ++w) total += of_warp[warp][w][lane];
  real& y = to[at * n + column];
  y = (warp == 0 ? out.add[0] : out.add[1]) ? y + total : total;
}

template <class Terms>
void launch_parts(Terms terms, int64_t groups, int64_t rows, int64_t n, int64_t part, int64_t parts, Columns out) {
  launch_rows(groups * parts * gpu::ceil_div(n, kWarp), add_part<Terms>, terms, rows, n, part, parts, out);
}

// out (groups, n) = the sums over each group's rows.
template <class Terms>
void sum_columns(Terms terms, int64_t groups, int64_t rows, int64_t n, Columns out) {
  const int64_t parts = gpu::ceil_div(rows, kPartRows);
  if (parts <= 1) return launch_parts(terms, groups, rows, n, kPartRows, 1, out);
  const int64_t size = groups * parts * n;
  Scratch partial(Terms::kSums * size * static_cast<int64_t>(sizeof(real)));
  real* const of_parts[2] = {partial.as<real>(), partial.as<real>() + (Terms::kSums - 1) * size};
  launch_parts(terms, groups, rows, n, kPartRows, parts, {{of_parts[0], of_parts[1]}, {false, false}});
  for (int k = 0; k < Terms::kSums; ++k)
    if (out.y[k])
      launch_parts(Element{of_parts[k], n, 1}, groups, parts, n, parts, 1, {{out.y[k], nullptr}, {out.add[k], false}});
}

}  // namespace bonsai::cuda::BONSAI_LEVEL
