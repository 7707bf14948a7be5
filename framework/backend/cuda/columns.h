// Column sums over rows: gradients of norms and biases, and reductions of an axis other than the last. Parts
// of kPartRows rows are summed in parallel; then the sums of the parts are added in order.
#pragma once

#include "bonsai/framework/backend/cuda/loops.h"

namespace bonsai::cuda::BONSAI_LEVEL {

inline constexpr int64_t kPartRows = 128;

// The destinations of up to two sums per column; null: not needed.
struct Columns {
  real* y[2];
  bool add[2];
};

// An example of Terms: has kSums sums per column; operator() adds a row's terms to them.
struct Element {
  static constexpr int kSums = 1;
  const real* x;
  int64_t n;
  real factor;
  __device__ void operator()(int64_t row, int64_t column, real* sums) const {
    sums[0] += factor * x[row * n + column];
  }
};

// A block sums 32 columns over one part (`part` rows) of one group (`rows` rows). Its warps divide the rows
// among them; then the sums of the warps are added in order.
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
  real* const to = warp == 0 ? out.y[0] : out.y[1];  // out.y[warp] would move the arguments to local memory
  if (warp >= Terms::kSums || column >= n || !to) return;
  real total = 0;
  for (int w = 0; w < kWarps; ++w) total += of_warp[warp][w][lane];
  real& y = to[at * n + column];
  y = (warp == 0 ? out.add[0] : out.add[1]) ? y + total : total;
}

template <class Terms>
void launch_parts(Terms terms, int64_t groups, int64_t rows, int64_t n, int64_t part, int64_t parts,
                  Columns out) {
  launch_rows(groups * parts * gpu::ceil_div(n, kWarp), add_part<Terms>, terms, rows, n, part, parts, out);
}

// out (groups, n) = the column sums of each group of rows.
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
      launch_parts(Element{of_parts[k], n, 1}, groups, parts, n, parts, 1,
                   {{out.y[k], nullptr}, {out.add[k], false}});
}

}  // namespace bonsai::cuda::BONSAI_LEVEL
