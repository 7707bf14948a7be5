// Shared by the kernels: block sizes, reductions over warps and blocks in a fixed order, scratch memory.
//
// Files that include this are compiled once per element type `real`, each into its own namespace.
#pragma once

#include "bonsai/framework/backend/cuda/launch.h"
#include "bonsai/framework/backend/cuda/stream.h"
#include "bonsai/framework/backend/math.h"

namespace bonsai::cuda::BONSAI_LEVEL {

using real = BONSAI_REAL;

inline constexpr int kBlock = 256, kWarp = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;

// Memory from the pool for one call. It can be returned while kernels that use it are queued, because the
// work of the next user is queued after them.
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

// Launches one thread per element, in at most 2^31 blocks; launches nothing if n = 0.
template <class... P, class... A>
void launch_elements(int64_t n, void (*kernel)(P...), A&&... args) {
  if (n > 0) gpu::launch({gpu::ceil_div(n, kBlock), kBlock, 0, stream()}, kernel, std::forward<A>(args)...);
}
__device__ inline int64_t element() { return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }

// Launches one block per row, for at most 2^31 rows.
template <class... P, class... A>
void launch_rows(int64_t rows, void (*kernel)(P...), A&&... args) {
  if (rows > 0)
    gpu::launch({static_cast<unsigned>(rows), kBlock, 0, stream()}, kernel, std::forward<A>(args)...);
}

struct Sum {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Max {  // ignores NaN
  template <class T>
  __device__ T operator()(T a, T b) const {
    return b > a ? b : a;
  }
};

// Reduces over a warp. Every lane gets the result.
template <class T, class F>
__device__ T warp_reduce(T v, F f) {
  for (int o = kWarp / 2; o > 0; o /= 2) v = f(v, __shfl_xor_sync(kAllLanes, v, o));
  return v;
}

// Reduces over a block of kBlock threads, in a fixed order. Every thread gets the result.
template <class T, class F>
__device__ T block_reduce(T v, F f) {
  GPU_SHARED(T, part, [kBlock / kWarp]);
  v = warp_reduce(v, f);
  __syncthreads();  // all threads have finished the previous use of `part`
  if (threadIdx.x % kWarp == 0) part[threadIdx.x / kWarp] = v;
  __syncthreads();
  v = part[0];
  for (int i = 1; i < kBlock / kWarp; ++i) v = f(v, part[i]);
  return v;
}

// The threads that work on a row: one thread, a warp or a block. Teams beyond the last row return
// immediately.
template <int kThreads>
struct Team {
  static __device__ int64_t row() { return element() / kThreads; }
  static __device__ int lane() { return static_cast<int>(threadIdx.x) % kThreads; }

  template <class T, class F>
  static __device__ T reduce(T v, F f) {
    if constexpr (kThreads == kBlock)
      return block_reduce(v, f);
    else if constexpr (kThreads == kWarp)
      return warp_reduce(v, f);
    else
      return v;
  }
};

// Launches one warp per row, in blocks of two warps, so that few rows are spread over many multiprocessors.
template <class... P, class... A>
void launch_warps(int64_t rows, void (*kernel)(P...), A&&... args) {
  if (rows > 0)
    gpu::launch({gpu::ceil_div(rows, 2), 2 * kWarp, 0, stream()}, kernel, std::forward<A>(args)...);
}

// Rows up to this length get a warp: a block would wait at barriers longer than it computes.
inline constexpr int64_t kShortRow = 1024;

template <class... P, class... A>
void launch_teams(int64_t rows, int64_t n, void (*of_warp)(P...), void (*of_block)(P...), A&&... args) {
  if (n > kShortRow) return launch_rows(rows, of_block, std::forward<A>(args)...);
  launch_warps(rows, of_warp, std::forward<A>(args)...);
}

struct TopSum {
  real top, sum;  // the largest element of a row, ignoring NaN, and the sum of exp(element - top)
};

// Computes both in one pass over the row, four elements at a time. If all elements are -inf, returns -inf and
// 0. If an element is NaN, the sum is NaN.
template <int kTeam>
__device__ TopSum top_and_sum(const real* x, int64_t n) {
  constexpr int kAhead = 4;
  real top = std::numeric_limits<real>::lowest(), sum = 0;  // not -inf, because -inf - -inf is NaN
  for (int64_t i = Team<kTeam>::lane(); i < n; i += kAhead * kTeam) {
    real v[kAhead], high = top;
    for (int k = 0; k < kAhead; ++k) {
      v[k] = i + k * kTeam < n ? x[i + k * kTeam] : -math::infinity<real>;
      high = Max{}(high, v[k]);
    }
    if (high > top) {
      sum *= math::exp(top - high);
      top = high;
    }
    for (int k = 0; k < kAhead; ++k) sum += math::exp(v[k] - top);
  }
  const real all = Team<kTeam>::reduce(sum == 0 ? -math::infinity<real> : top, Max{});
  return {all, Team<kTeam>::reduce(sum == 0 ? real(0) : sum * math::exp(top - all), Sum{})};
}

// Records the first index error since the host last read one; later errors are dropped.
__device__ inline void report_index_error(IndexError* index_error, int64_t op, int64_t position,
                                          int64_t value, int64_t limit) {
  if (atomicCAS(reinterpret_cast<unsigned long long*>(&index_error->count), 0ull, 1ull) != 0) return;
  index_error->position = position;
  index_error->value = value;
  index_error->limit = limit;
  index_error->op = op;
}

}  // namespace bonsai::cuda::BONSAI_LEVEL
