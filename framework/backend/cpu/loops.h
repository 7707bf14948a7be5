// How CPU kernels split their work: by shape alone, never by the number of threads. A partial result
// belongs to its tile, and partial results are added in tile order. Results are therefore bit-identical
// for any number of threads.
//
// Files that include this are compiled once per level, for one element type `real` (see README.md).
#pragma once

#include "bonsai/framework/backend/kernels.h"
#include "bonsai/framework/backend/math.h"
#include "bonsai/framework/core/parallel.h"

namespace bonsai::cpu {

// Memory from the pool for a kernel's own use. Not inline, so that all levels share one function.
void* take_scratch(size_t bytes);
void give_back_scratch(void* block, size_t bytes);

namespace BONSAI_LEVEL {

using real = BONSAI_REAL;

inline constexpr int64_t kGrain = 8192;  // elements per tile of elementwise work

// Bytes of a vector register. A test defines BONSAI_TILE to use other sizes than the processor's.
#if defined(BONSAI_TILE)
inline constexpr int kVectorBytes = BONSAI_TILE;
#elif defined(__AVX512F__)
inline constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
inline constexpr int kVectorBytes = 32;
#else
inline constexpr int kVectorBytes = 16;
#endif
inline constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(real));

typedef real Vector __attribute__((vector_size(kVectorBytes), aligned(alignof(real)), may_alias));
inline Vector load(const real* p) { return *reinterpret_cast<const Vector*>(p); }
inline void store(real* p, Vector v) { *reinterpret_cast<Vector*>(p) = v; }

// Prefetches n elements, kAhead after p. What the forward pass saved is no longer in the cache, and in a loop
// that computes much per element the hardware prefetches too late.
inline constexpr int64_t kAhead = 512, kLine = 64 / sizeof(real);  // in elements; kLine: a cache line
inline void fetch_ahead(const real* p, int64_t n) {
  for (int64_t i = 0; i < n; i += kLine) __builtin_prefetch(p + kAhead + i);
}

class Scratch {
 public:
  explicit Scratch(int64_t elements)
      : bytes_(static_cast<size_t>(elements) * sizeof(real)),
        data_(static_cast<real*>(take_scratch(bytes_))) {}
  ~Scratch() { give_back_scratch(data_, bytes_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  real* data() const { return data_; }

 private:
  size_t bytes_;
  real* data_;
};

inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
inline int64_t tiles_of(int64_t n, int64_t size) { return (n + size - 1) / size; }
inline int64_t whole_vectors(int64_t n) { return tiles_of(n, kLanes) * kLanes; }

// Calls f(t, scratch) for t < count; `scratch` has `elements` elements of the thread that runs the tile.
// Allocates the memory of all threads at once, so that the amount does not depend on which threads are free.
template <class F>
void run_tiles_with_scratch(int64_t count, int64_t elements, F f) {
  const int workers = static_cast<int>(smaller(count, threads()));
  Scratch scratch(workers * elements);
  run_tiles(count, workers, [&](int64_t t, int worker) { f(t, scratch.data() + worker * elements); });
}

// Calls f(begin, end) for ranges of `size` elements that cover [0, n).
template <class F>
void for_ranges(int64_t n, int64_t size, F f) {
  if (n <= size) {
    if (n > 0) f(int64_t{0}, n);
    return;
  }
  run_tiles(tiles_of(n, size), [&](int64_t t) { f(t * size, smaller(n, (t + 1) * size)); });
}

// Calls f(row) for every row; `width` is the number of elements per row.
template <class F>
void for_rows(int64_t rows, int64_t width, F f) {
  for_ranges(rows, larger(1, kGrain / larger(1, width)), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) f(row);
  });
}

inline void fill(real* y, int64_t n, real value) {
  for (int64_t i = 0; i < n; ++i) y[i] = value;
}

inline real sum_of(const real* x, int64_t n) {
  real sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += x[i];
  return sum;
}

inline real dot(const real* x, const real* y, int64_t n) {
  real sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += x[i] * y[i];
  return sum;
}

// The largest element, ignoring NaN; -inf if there is none.
inline real max_of(const real* x, int64_t n) {
  real top = -math::infinity<real>;
#pragma omp simd reduction(max : top)
  for (int64_t i = 0; i < n; ++i) top = x[i] > top ? x[i] : top;
  return top;
}

// Adds the first half to the second half until one element is left.
template <int n>
inline real sum_by_halves(const real (&x)[n]) {
  if constexpr (n == 1) {
    return x[0];
  } else {
    real half[n / 2];
#pragma omp simd
    for (int i = 0; i < n / 2; ++i) half[i] = x[i] + x[i + n / 2];
    return sum_by_halves(half);
  }
}

// y = e^(x - top) for one row; returns their sum. y may be x.
inline real exponentials(const real* x, int64_t n, real top, real* y) {
  constexpr int kTerms = kLanes > 8 ? kLanes : 8;
  real sums[kTerms] = {};
  int64_t i = 0;
  for (; i + kTerms <= n; i += kTerms)
#pragma omp simd
    for (int j = 0; j < kTerms; ++j) sums[j] += y[i + j] = math::exp(x[i + j] - top);
  if (i < n) {
    real last[kTerms];
    for (int j = 0; j < kTerms; ++j) last[j] = i + j < n ? x[i + j] - top : -math::infinity<real>;
#pragma omp simd
    for (int j = 0; j < kTerms; ++j) sums[j] += last[j] = math::exp(last[j]);
    for (int j = 0; i + j < n; ++j) y[i + j] = last[j];
  }
  return sum_by_halves(sums);
}

// dx = p (d - mean) with mean = sum(p d), for one row; dx may be d. If one p is nearly 1, the difference
// cancels, and f32 weights p sum to 1 only within their rounding. Therefore f32 rows are summed in double,
// and sum(p d) is divided by sum(p).
inline double softmax_mean(const real* p, const real* d, int64_t n) {
  double sum = 0, total = 0;
#pragma omp simd reduction(+ : sum, total)
  for (int64_t i = 0; i < n; ++i) {
    sum += static_cast<double>(p[i]) * static_cast<double>(d[i]);
    total += static_cast<double>(p[i]);
  }
  return sizeof(real) < sizeof(double) && total > 0 ? sum / total : sum;
}
inline void softmax_gradient(const real* p, const real* d, double mean, real* dx, int64_t n) {
  const real high = static_cast<real>(mean), low = static_cast<real>(mean - static_cast<double>(high));
  for (int64_t i = 0; i < n; ++i) dx[i] = ((d[i] - high) - low) * p[i];  // a cancelling difference is exact
}

// The softmax of a row whose largest score is -inf: 0 if all scores are -inf, NaN if one is NaN.
inline real empty_weight(const real* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    if (x[i] != x[i]) return x[i];
  return 0;
}

// y = or, if `add` is true, y += the sum of `count` rows of n elements, added in order.
inline void add_rows(const real* rows, int64_t count, int64_t n, real* y, bool add) {
  for_ranges(n, larger(64, kGrain / larger(1, count)), [&](int64_t begin, int64_t end) {
    for (int64_t r = 0; r < count; ++r) {
      const real* row = rows + r * n;
      const bool first = r == 0 && !add;
      for (int64_t i = begin; i < end; ++i) y[i] = first ? row[i] : y[i] + row[i];
    }
    if (count == 0 && !add) fill(y + begin, end - begin, 0);
  });
}

// Sums over rows in fixed chunks. part(row, sums) adds a row's terms to `width` running sums. The sums of the
// chunks are then added in order and go to y, unless it is null. `cost` is the number of elements read per
// row.
template <class F>
void sum_over_rows(int64_t rows, int64_t width, int64_t cost, real* y, bool add, F part) {
  const int64_t size = larger(1, kGrain / larger(1, cost));
  const int64_t tiles = tiles_of(rows, size);
  Scratch partial(tiles * width);
  run_tiles(tiles, [&](int64_t t) {
    real* sums = partial.data() + t * width;
    fill(sums, width, 0);
    for (int64_t row = t * size; row < smaller(rows, (t + 1) * size); ++row) part(row, sums);
  });
  if (y) add_rows(partial.data(), tiles, width, y, add);
}

}  // namespace BONSAI_LEVEL
}  // namespace bonsai::cpu
