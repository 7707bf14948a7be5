// What kernels share: sizes of blocks, sums over warps and blocks in a fixed order, scratch memory.
//
// Files that include this are compiled once for each element type `real`, into a namespace of its own.
#pragma once

#include "framework/backend/cuda/launch.h"
#include "framework/backend/cuda/stream.h"
#include "framework/backend/math.h"

namespace bonsai::cuda::BONSAI_LEVEL {

using real = BONSAI_REAL;

inline constexpr int kBlock = 256, kWarp = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;

// Memory of the pool for one call: what is queued runs in order, so the next taker may have it at once.
class Scratch {
 public:
  explicit Scratch(int64_t bytes) : bytes_(static_cast<size_t>(bytes)), data_(take_scratch(bytes_)) {}
  ~Scratch() { give_back_scratch(data_, bytes_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  size_t bytes_;
  void* data_;
};

// One thread an element, for at most 2^31 blocks; none for none.
template <class... P, class... A>
void launch_elements(int64_t n, void (*kernel)(P...), A&&... args) {
  if (n > 0) gpu::launch({gpu::ceil_div(n, kBlock), kBlock, 0, stream()}, kernel, std::forward<A>(args)...);
}
__device__ inline int64_t element() { return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }

// One block a row. Rows are on x: 2^31 of them.
template <class... P, class... A>
void launch_rows(int64_t rows, void (*kernel)(P...), A&&... args) {
  if (rows > 0) gpu::launch({static_cast<unsigned>(rows), kBlock, 0, stream()}, kernel, std::forward<A>(args)...);
}

struct Sum {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Max {  // NaN does not count
  template <class T>
  __device__ T operator()(T a, T b) const {
    return b > a ? b : a;
  }
};

// Every lane gets the result.
template <class T, class F>
__device__ T warp_reduce(T v, F f) {
  for (int o = kWarp / 2; o > 0; o /= 2) v = f(v, __shfl_xor_sync(kAllLanes, v, o));
  return v;
}

// Every thread of the block gets the result; the block has kBlock threads. The order is that of the threads: the same
// bits each time.
template <class T, class F>
__device__ T block_reduce(T v, F f) {
  GPU_SHARED(T, part, [kBlock / kWarp]);
  v = warp_reduce(v, f);
  __syncthreads();  // the last use of part is over
  if (threadIdx.x % kWarp == 0) part[threadIdx.x / kWarp] = v;
  __syncthreads();
  v = part[0];
  for (int i = 1; i < kBlock / kWarp; ++i) v = f(v, part[i]);
  return v;
}

}  // namespace bonsai::cuda::BONSAI_LEVEL
