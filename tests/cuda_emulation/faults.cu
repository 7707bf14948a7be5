// Typical faults of kernels. Each must be found, and the report must say what is wrong and where.
#include "bonsai/tests/cuda_emulation/faults.h"

namespace faults {

__global__ void fill(float* p, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) p[i] = static_cast<float>(i);
}
__global__ void copy(float* to, const float* from, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) to[i] = from[i];
}
__global__ void sum_view(float* out, View view) {
  float sum = 0;
  for (int i = 0; i < view.n; ++i) sum += view.data[i];
  *out = sum;
}
__global__ void use_dynamic(float* p) {
  GPU_DYN_SMEM(float, buffer);
  buffer[threadIdx.x] = p[threadIdx.x];
  __syncthreads();
  p[threadIdx.x] = buffer[blockDim.x - 1 - threadIdx.x];
}

__global__ void write_at(float* p, int at) {
  if (threadIdx.x == 3) p[at] = 1;
}
__global__ void divide(int* p, int by) { p[threadIdx.x] = p[threadIdx.x] / by; }
__global__ void follow(float* const* table) { *table[threadIdx.x] = 1; }

__global__ void exit_before_barrier(float* p) {
  if (threadIdx.x >= 40) return;
  __syncthreads();
  p[threadIdx.x] = 0;
}
__global__ void two_barriers(float* p) {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
  p[threadIdx.x] = 0;
}
__global__ void shuffle_after_exit(float* p, int n) {
  const int i = static_cast<int>(threadIdx.x);
  if (i >= n) return;
  p[i] = __shfl_xor_sync(0xffffffffu, p[i], 1);
}
__global__ void shuffle_in_branch(float* p) {
  float v = p[threadIdx.x];
  if (threadIdx.x % 2) v = __shfl_xor_sync(0xffffffffu, v, 2);
  p[threadIdx.x] = v;
}
__global__ void shuffle_two_places(float* p) {
  float v = p[threadIdx.x];
  if (threadIdx.x % 2) {
    v = __shfl_xor_sync(0xffffffffu, v, 1);
  } else {
    v = __shfl_xor_sync(0xffffffffu, v, 1);
  }
  p[threadIdx.x] = v;
}
__global__ void shuffle_from_idle(float* p) {
  float v = p[threadIdx.x];
  if (threadIdx.x % 2) v = __shfl_xor_sync(0xaaaaaaaau, v, 1);
  p[threadIdx.x] = v;
}
__global__ void shuffle_not_in_mask(float* p) {
  p[threadIdx.x] = __shfl_sync(0xfffffffeu, p[threadIdx.x], 1);
}

__global__ void no_barrier(float* p) {
  GPU_SHARED(float, t, [64]);
  t[threadIdx.x] = p[threadIdx.x];
  p[threadIdx.x] = t[63 - threadIdx.x];
}
__global__ void no_syncwarp(float* p) {
  GPU_SHARED(float, t, [32]);
  t[threadIdx.x] = p[threadIdx.x];
  p[threadIdx.x] = t[31 - threadIdx.x];
}
__global__ void no_barrier_in_loop(float* p, int n) {
  GPU_SHARED(float, t, [64]);
  for (int i = 0; i < n; ++i) {
    t[threadIdx.x] = p[i * 64 + static_cast<int>(threadIdx.x)];
    __syncthreads();
    p[i * 64 + static_cast<int>(threadIdx.x)] += t[(threadIdx.x + 33) % 64];
  }
}
__global__ void read_unwritten_shared(float* p) {
  GPU_SHARED(float, t, [32]);
  if (threadIdx.x < 31) t[threadIdx.x] = 1;
  __syncthreads();
  p[threadIdx.x] = t[threadIdx.x];
}
__global__ void too_much_shared(float* p) {
  GPU_SHARED(float, t, [12289]);
  t[threadIdx.x] = p[threadIdx.x];
}
__global__ void deep_stack(float* p, int n) {
  volatile float big[16384];
  for (int i = 0; i < 16384; ++i) big[i] = static_cast<float>(i);
  p[0] = big[n];
}
__global__ void past_shared(float* p) {
  GPU_SHARED(float, t, [32]);
  t[threadIdx.x + 1] = 1;
  __syncthreads();
  p[threadIdx.x] = t[threadIdx.x];
}
__global__ void trap_if_negative(const float* p) {
  if (p[threadIdx.x] < 0) __trap();
}

}  // namespace faults
