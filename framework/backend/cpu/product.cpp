// Matrix products by a micro-kernel that keeps an MR x NR tile of C in registers over KC steps of the inner
// dimension. B is packed into panels of NR columns. A is read in place or, if it is transposed and its rows
// are far apart, packed MC rows at a time. Goto & van de Geijn 2008, doi:10.1145/1356052.1356053
#include "bonsai/framework/backend/cpu/product.h"

#include <utility>

#include "bonsai/framework/backend/cpu/gemm.h"

namespace bonsai::cpu::BONSAI_LEVEL {
namespace {

// Rows of B and rows of C per packed block: a KC x NR panel of B stays in the L1 cache.
constexpr int64_t kKC = kNRVectors == 4 ? 128 : 256, kMC = 48;
constexpr int64_t kNear = 256;  // a transposed A is read in place if its leading dimension is at most this

struct Out {
  real* c;
  int64_t ldc;
  int64_t columns;
  const real* bias;
  real alpha;
  bool add;
};

// Stores one vector of the tile, or only its first `columns` elements.
[[gnu::always_inline]] inline void write_vector(Vector sum, real* c, const real* bias, int64_t columns,
                                                bool add) {
  if (columns >= kLanes) {
    if (bias) sum += load(bias);
    if (add) sum += load(c);
    return store(c, sum);
  }
  real row[kLanes];
  store(row, sum);
  for (int64_t j = 0; j < columns; ++j) {
    if (bias) row[j] += bias[j];
    c[j] = add ? c[j] + row[j] : row[j];
  }
}

template <int R, int V>
[[gnu::always_inline]] inline void write(const Vector (&sum)[R][V], const Out& out) {
  real* c = out.c;
  if (out.columns == V * kLanes) {
    Vector bias[V];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) bias[v] = out.bias ? load(out.bias + v * kLanes) : Vector{};
    if (out.add) {
#pragma GCC unroll 6
      for (int i = 0; i < R; ++i, c += out.ldc)
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v)
          store(c + v * kLanes, load(c + v * kLanes) + (out.alpha * sum[i][v] + bias[v]));
    } else {
#pragma GCC unroll 6
      for (int i = 0; i < R; ++i, c += out.ldc)
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) store(c + v * kLanes, out.alpha * sum[i][v] + bias[v]);
    }
    return;
  }
#pragma GCC unroll 6
  for (int i = 0; i < R; ++i, c += out.ldc)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v)
      write_vector(out.alpha * sum[i][v], c + v * kLanes, out.bias ? out.bias + v * kLanes : nullptr,
                   out.columns - v * kLanes, out.add);
}

// C (R, V vectors) from R rows of A, starting at `from`, and the first V vectors of a panel of B. Element (i,
// p) of A is at from[i * ld + p] or, if `side_by_side` is true, at from[i + p * ld].
template <bool side_by_side, int R, int V>
void micro_kernel(int64_t depth, const real* from, int64_t ld, const real* panel, const Out& out) {
  Vector sum[R][V] = {};
  const real* a[R];
#pragma GCC unroll 6
  for (int i = 0; i < R; ++i) a[i] = from + i * ld;
#pragma GCC unroll 8  // reduces loop overhead, which counts if two threads share a core
  for (int64_t p = 0; p < depth; ++p, panel += kNR) {
    Vector b[V];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) b[v] = load(panel + v * kLanes);
#pragma GCC unroll 6
    for (int i = 0; i < R; ++i) {
      const real x = side_by_side ? from[p * ld + i] : a[i][p];
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) sum[i][v] += x * b[v];
    }
  }
  write<R, V>(sum, out);
}

// of[(r - 1) * kNRVectors + v - 1] computes r rows and v vectors.
using MicroKernel = void (*)(int64_t, const real*, int64_t, const real*, const Out&);
template <bool side_by_side, class = std::make_integer_sequence<int, kMR * kNRVectors>>
struct MicroKernels;
template <bool side_by_side, int... i>
struct MicroKernels<side_by_side, std::integer_sequence<int, i...>> {
  static constexpr MicroKernel of[] = {micro_kernel<side_by_side, i / kNRVectors + 1, i % kNRVectors + 1>...};
};

// Packs a matrix (depth, count) into blocks (depth, width), which start `block` elements apart. Reads each
// row from beginning to end. Pads the last vector with zeros.
template <int width>
void pack_across(const real* from, int64_t ld, int64_t depth, int64_t count, real* out, int64_t block) {
  constexpr int64_t kRowsAhead = 8;
  static_assert(width % kLanes == 0);
  for (int64_t e = 0; e < depth; ++e, from += ld, out += width) {
    for (int64_t i = 0; i < count; i += kLine) __builtin_prefetch(from + kRowsAhead * ld + i);
    real* to = out;
    int64_t i = 0;
    for (; i + width <= count; i += width, to += block)
      for (int v = 0; v < width; v += kLanes) store(to + v, load(from + i + v));
    for (; i < count; i += kLanes, to += kLanes)
      if (i + kLanes <= count)
        store(to, load(from + i));
      else
        for (int64_t j = 0; j < kLanes; ++j) to[j] = i + j < count ? from[i + j] : 0;
  }
}

// out[i * step + j] = in[j * ld + i] for an 8 x 8 block.
template <class T>
void transpose(const T* in, int64_t ld, T* out, int64_t step) {
  for (int i = 0; i < 8; ++i)
    for (int j = 0; j < 8; ++j) out[i * step + j] = in[j * ld + i];
}

#if defined(__AVX2__)
typedef float Eight __attribute__((vector_size(32), aligned(4), may_alias));

void transpose(const float* in, int64_t ld, float* out, int64_t step) {
  Eight r[8], t[8], u[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) r[i] = *reinterpret_cast<const Eight*>(in + i * ld);
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    t[i] = __builtin_shufflevector(r[i], r[i + 1], 0, 8, 2, 10, 4, 12, 6, 14);
    t[i + 1] = __builtin_shufflevector(r[i], r[i + 1], 1, 9, 3, 11, 5, 13, 7, 15);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 4)
    for (int j = i; j < i + 2; ++j) {
      u[j] = __builtin_shufflevector(t[j], t[j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
      u[j + 2] = __builtin_shufflevector(t[j], t[j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    *reinterpret_cast<Eight*>(out + i * step) =
        __builtin_shufflevector(u[i], u[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    *reinterpret_cast<Eight*>(out + (i + 4) * step) =
        __builtin_shufflevector(u[i], u[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}
#endif

// Packs a matrix (count, depth) into one panel (depth, kNR). Pads the last vector with zeros.
void pack_along(const real* from, int64_t ld, int64_t depth, int64_t count, real* out) {
  const int64_t filled = whole_vectors(count), deep = depth / 8 * 8;
  const int64_t whole = kNR % 8 == 0 ? count / 8 * 8 : 0;  // columns in 8 x 8 blocks
  for (int64_t e = 0; e < deep; e += 8)
    for (int64_t i = 0; i < whole; i += 8) transpose(from + i * ld + e, ld, out + e * kNR + i, kNR);
  for (int64_t e = 0; e < depth; ++e)
    for (int64_t i = e < deep ? whole : 0; i < filled; ++i)
      out[e * kNR + i] = i < count ? from[i * ld + e] : 0;
}

// Packs rows [d, d + depth) and columns [n, n + width) of op(B) into panels.
void pack_panels(const Product& p, int64_t d, int64_t depth, int64_t n, int64_t width, real* out) {
  if (!p.b_transposed)
    return pack_across<kNR>(p.b + d * p.ldb + n, p.ldb, depth, width, out, depth * kNR);
  for (int64_t j = 0; j < width; j += kNR) {
    for (int64_t i = j + kNR; i < smaller(width, j + 2 * kNR); ++i)
      for (int64_t e = 0; e < depth; e += kLine)
        __builtin_prefetch(p.b + (n + i) * p.ldb + d + e);
    pack_along(p.b + (n + j) * p.ldb + d, p.ldb, depth, smaller(kNR, width - j), out + j * depth);
  }
}

// For rows [m, m + rows) of C: the columns that are needed, and the part of the inner dimension where A is
// not zero.
Range wanted(const Product& p, int64_t m, int64_t rows) {
  if (p.band.of != Band::c) return {0, p.n};
  return {m + p.band.begin, m + rows - 1 + p.band.end};
}
Range filled(const Product& p, int64_t m, int64_t rows) {
  if (p.band.of != Band::a) return {0, p.k};
  return p.a_transposed ? Range{m + 1 - p.band.end, m + rows - p.band.begin}
                        : Range{m + p.band.begin, m + rows - 1 + p.band.end};
}

// Adds the products of rows [d, d + depth) of op(B) to columns [n, n + width) of C; `b_panels` are these
// columns.
void multiply_panels(const Product& p, real alpha, bool add, int64_t d, int64_t depth, int64_t n,
                     int64_t width, const real* b_panels, real* a_block) {
  const bool packed = p.a_transposed && p.lda > kNear;
  for (int64_t m = 0; m < p.m; m += kMC) {
    const int64_t height = smaller(kMC, p.m - m);
    if (packed)
      pack_across<kMC>(p.a + d * p.lda + m, p.lda, depth, height, a_block, 0);
    for (int64_t j = 0; j < width; j += kNR)
      for (int64_t i = 0; i < height; i += kMR) {
        const int64_t rows = smaller(kMR, height - i);
        const Range columns = wanted(p, m + i, rows), deep = filled(p, m + i, rows);
        const int64_t taken = smaller(smaller(kNR, width - j), columns.end - (n + j));
        if (taken <= 0 || n + j + kNR <= columns.begin) continue;
        const int64_t e = smaller(depth, larger(0, deep.begin - d));
        const int64_t length = larger(0, smaller(depth, deep.end - d) - e);
        const real* panel = b_panels + j * depth + e * kNR;
        const Out out{p.c + (m + i) * p.ldc + n + j,
                      p.ldc,
                      taken,
                      p.bias && d == 0 ? p.bias + n + j : nullptr,
                      alpha,
                      add || d > 0};
        const int64_t size = (rows - 1) * kNRVectors + (taken - 1) / kLanes;
        if (packed)
          MicroKernels<true>::of[size](length, a_block + e * kMC + i, kMC, panel, out);
        else if (p.a_transposed)
          MicroKernels<true>::of[size](length, p.a + (d + e) * p.lda + m + i, p.lda, panel, out);
        else
          MicroKernels<false>::of[size](length, p.a + (m + i) * p.lda + d + e, p.lda, panel, out);
      }
  }
}

template <int... i>
Vector pair_sums(Vector a, Vector b, std::integer_sequence<int, i...>) {
  return __builtin_shufflevector(a, b, 2 * i...) + __builtin_shufflevector(a, b, (2 * i + 1)...);
}

// The sums of the lanes of each vector, one sum per lane of the result; adds neighbouring lanes until one is
// left.
template <int n>
[[gnu::always_inline]] inline Vector sums_of_lanes(const Vector (&x)[n]) {
  if constexpr (n == 1) {
    return x[0];
  } else {
    Vector half[n / 2];
#pragma GCC unroll 8
    for (int i = 0; i < n / 2; ++i)
      half[i] = pair_sums(x[2 * i], x[2 * i + 1], std::make_integer_sequence<int, kLanes>());
    return sums_of_lanes(half);
  }
}

// Columns [n, n + kLanes) of C if B is transposed: dot products of rows of A with rows of B.
void dots(const Product& p, real alpha, bool add, int64_t n) {
  const real* b[kLanes];
  for (int i = 0; i < kLanes; ++i) b[i] = p.b + smaller(n + i, p.n - 1) * p.ldb;
  for (int64_t m = 0; m < p.m; ++m) {
    const real* a = p.a + m * p.lda;
    Vector sums[kLanes] = {};
    int64_t e = 0;
    for (; e + kLanes <= p.k; e += kLanes) {
      const Vector x = load(a + e);
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) sums[i] += x * load(b[i] + e);
    }
    Vector sum = sums_of_lanes(sums);
    for (; e < p.k; ++e)
      for (int i = 0; i < kLanes; ++i) sum[i] += a[e] * b[i][e];
    write_vector(alpha * sum, p.c + m * p.ldc + n, p.bias ? p.bias + n : nullptr, p.n - n, add);
  }
}

// C = bias, or C += bias: the product if k = 0.
void init_c(const Product& p, bool add, int64_t n_begin, int64_t n_end) {
  for (int64_t i = 0; i < p.m; ++i)
    for (int64_t j = n_begin; j < n_end; ++j)
      p.c[i * p.ldc + j] = (add ? p.c[i * p.ldc + j] : 0) + (p.bias ? p.bias[j] : 0);
}

}  // namespace

int64_t packed_elements(int64_t k, int64_t n) { return k * tiles_of(n, kNR) * kNR; }

// Packs KC rows of op(B) after the other, each as consecutive panels.
void pack(const Product& p, real* packed) {
  const int64_t all = tiles_of(p.n, kNR) * kNR;
  if (!p.b_transposed) {  // a part is some of the KC rows, each read from beginning to end
    const int64_t rows = larger(8, kGrain / larger(1, all)), parts = tiles_of(kKC, rows);
    return run_tiles(tiles_of(p.k, kKC) * parts, [&](int64_t t) {
      const int64_t d = t / parts * kKC, depth = smaller(kKC, p.k - d), e = t % parts * rows;
      if (e < depth)
        pack_across<kNR>(p.b + (d + e) * p.ldb, p.ldb, smaller(rows, depth - e), p.n,
                         packed + d * all + e * kNR, depth * kNR);
    });
  }
  // A part is some panels of the KC rows.
  const int64_t panels = larger(1, kGrain / (kKC * kNR)), parts = tiles_of(p.n, panels * kNR);
  run_tiles(tiles_of(p.k, kKC) * parts, [&](int64_t t) {
    const int64_t d = t / parts * kKC, depth = smaller(kKC, p.k - d), n = t % parts * panels * kNR;
    pack_panels(p, d, depth, n, smaller(panels * kNR, p.n - n), packed + d * all + n * depth);
  });
}

void own_product(const Product& p, real alpha, bool add, const real* packed, int64_t n_begin, int64_t n_end) {
  alignas(64) real a_block[kMC * kKC];
  const int64_t all = tiles_of(p.n, kNR) * kNR;
  if (p.k == 0) init_c(p, add, n_begin, n_end);
  for (int64_t d = 0; d < p.k; d += kKC) {
    const int64_t depth = smaller(kKC, p.k - d);
    multiply_panels(p, alpha, add, d, depth, n_begin, n_end - n_begin, packed + d * all + n_begin * depth,
                    a_block);
  }
}

void own_product(const Product& p, real alpha, bool add) {
  alignas(64) real b_panels[kNC * kKC], a_block[kMC * kKC];
  if (p.k == 0) init_c(p, add, 0, p.n);
  for (int64_t d = 0; d < p.k; d += kKC) {
    const int64_t depth = smaller(kKC, p.k - d);
    for (int64_t n = 0; n < p.n; n += kNC) {
      const int64_t width = smaller(kNC, p.n - n);
      pack_panels(p, d, depth, n, width, b_panels);
      multiply_panels(p, alpha, add, d, depth, n, width, b_panels, a_block);
    }
  }
}

void gemv(const Product& p, real alpha, bool add) {
  if (p.b_transposed) {
    for (int64_t n = 0; n < p.n; n += kLanes) dots(p, alpha, add, n);
    return;
  }
  init_c(p, add, 0, p.n);
  for (int64_t m = 0; m < p.m; ++m) {
    real* __restrict c = p.c + m * p.ldc;
    for (int64_t e = 0; e < p.k; ++e) {
      const real x = alpha * p.a[m * p.lda + e];
      const real* __restrict b = p.b + e * p.ldb;
      for (int64_t j = 0; j < p.n; ++j) c[j] += x * b[j];
    }
  }
}

bool prefers_own() { return (sizeof(real) == 4 && kVectorBytes >= 32) || use_own_blas(); }

void product(const Product& p, real alpha, bool add) {
  if (prefers_own()) return own_product(p, alpha, add);
  if (p.bias)
    for (int64_t i = 0; i < p.m; ++i)
      for (int64_t j = 0; j < p.n; ++j) p.c[i * p.ldc + j] = (add ? p.c[i * p.ldc + j] : 0) + p.bias[j];
  multiply(p.m, p.n, p.k, alpha, p.a, p.lda, p.a_transposed, p.b, p.ldb, p.b_transposed,
           add || p.bias ? real(1) : real(0), p.c, p.ldc);
}

}  // namespace bonsai::cpu::BONSAI_LEVEL
