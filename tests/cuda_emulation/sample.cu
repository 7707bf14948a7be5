// Kernels in the style of the backend's, for tests of the emulation itself.
#include "bonsai/tests/cuda_emulation/sample.h"

namespace sample {
namespace {

__device__ float sum_of_warp(float v) {
  for (int bits = 16; bits > 0; bits /= 2) v += __shfl_xor_sync(0xffffffffu, v, bits);
  return v;
}

__device__ unsigned thread_of_grid() {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  return block * (blockDim.x * blockDim.y * blockDim.z) + thread;
}

}  // namespace

__global__ void nothing(int) {}

__global__ void scale(double* p, int n, double by) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) p[i] *= by;
}

__global__ void sum_rows(const float* x, float* out, int n) {
  GPU_SHARED(float, part, [32]);
  float sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x))
    sum += x[static_cast<int64_t>(blockIdx.x) * n + i];
  sum = sum_of_warp(sum);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  sum = sum_of_warp(threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0.0f);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

__global__ void transpose(const float* x, float* out, int m, int n) {
  GPU_SHARED(float, tile, [32][33]);
  const int column = static_cast<int>(blockIdx.x * 32), row = static_cast<int>(blockIdx.y * 32);
  const int tx = static_cast<int>(threadIdx.x), ty = static_cast<int>(threadIdx.y);
  for (int i = ty; i < 32; i += 8)
    if (row + i < m && column + tx < n) tile[i][tx] = x[(row + i) * n + column + tx];
  __syncthreads();
  for (int i = ty; i < 32; i += 8)
    if (column + i < n && row + tx < m) out[(column + i) * m + row + tx] = tile[tx][i];
}

__global__ void histogram(const int* x, int n, int* counts, int bins) {
  GPU_DYN_SMEM(int, mine);
  const int t = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  for (int i = t; i < bins; i += threads) mine[i] = 0;
  __syncthreads();
  for (int i = static_cast<int>(blockIdx.x) * threads + t; i < n; i += static_cast<int>(gridDim.x) * threads)
    atomicAdd(&mine[x[i]], 1);
  __syncthreads();
  for (int i = t; i < bins; i += threads) atomicAdd(&counts[i], mine[i]);
}

__global__ void ask_lanes(unsigned* out) {
  const unsigned lane = threadIdx.x, all = 0xffffffffu;
  unsigned* mine = out + lane * 6;
  mine[0] = __ballot_sync(all, lane % 3 == 0);
  mine[1] = static_cast<unsigned>(__any_sync(all, lane == 7)) +
            2 * static_cast<unsigned>(__all_sync(all, lane != 7));
  mine[2] = __shfl_sync(all, lane, 5);
  mine[3] = __shfl_up_sync(all, lane, 1, 8);
  mine[4] = __shfl_down_sync(all, lane, 3);
  if (lane < 16) mine[5] = __shfl_xor_sync(0x0000ffffu, lane, 1) + 100 * __activemask() / 0xffffffffu;
}

__global__ void vote_in_block(int* out) {
  const int t = static_cast<int>(threadIdx.x);
  const int count = __syncthreads_count(t % 4 == 0);
  const int any = __syncthreads_or(t == 95), all = __syncthreads_and(t != 95);
  out[t] = count * 100 + any * 10 + all;
}

__global__ void scan_warp(double* p) {
  double v = p[threadIdx.x];
  for (unsigned by = 1; by < 32; by *= 2) {
    const double other = __shfl_up_sync(0xffffffffu, v, by);
    if (threadIdx.x >= by) v += other;
  }
  p[threadIdx.x] = v;
}

__global__ void where_am_i(unsigned* out) {
  unsigned* mine = out + static_cast<size_t>(thread_of_grid()) * 6;
  const uint3 all[2] = {blockIdx, threadIdx};
  for (int i = 0; i < 2; ++i) {
    mine[3 * i] = all[i].x;
    mine[3 * i + 1] = all[i].y;
    mine[3 * i + 2] = all[i].z;
  }
}

__global__ void last_block(const float* x, float* partial, unsigned* arrived, float* out) {
  partial[blockIdx.x] = x[blockIdx.x] * 2;
  __threadfence();
  if (atomicInc(arrived, gridDim.x - 1) != gridDim.x - 1) return;
  float sum = 0;
  for (unsigned i = 0; i < gridDim.x; ++i) sum += partial[i];
  *out = sum;
}

}  // namespace sample
