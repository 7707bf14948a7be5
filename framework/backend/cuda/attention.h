// Attention in tiles, after FlashAttention (Dao et al. 2022, arXiv:2205.14135). The scores of 64 queries and
// 32 keys at a time are in registers and shared memory, so no (Tq, Tk) tensor is ever written.
//
// Forward. A block owns 64 queries and iterates over the keys. For each query it has the running maximum m of
// the scores, the sum l of exponentials and the unnormalised result o. It rescales them when a tile has a
// larger score m':
//   l' = l e^(m - m') + sum e^(s - m'),  o' = o e^(m - m') + e^(s - m') v.
// Finally y = o / l; (m, l) are stored.
// Backward. The weights are recomputed, p = e^(s - m) / l. With dp = dy v^T and ds = p (dp - sum(p dp)):
//   dq = scale ds k: a block owns 64 queries and iterates over the keys twice, the first time for sum(p dp);
//   dk = scale ds^T q, dv = p^T dy: a block owns 32 keys and iterates over the queries of all heads that read
//     them;
//   dbias = ds: a block owns one tile of the bias and iterates over all that the bias is broadcast to.
// Each result thus has one owner, which sums in a fixed order: results are bit-identical every time, without
// atomics.
//
// A tile has D columns: the smallest of 32, 64 and 128 that holds the width of a head. A wider head is split
// into chunks: the products of queries and keys are summed over the chunks, and each block owns one chunk of
// the result's columns.
#pragma once

#include "bonsai/framework/backend/cuda/loops.h"

namespace bonsai::cuda::BONSAI_LEVEL {

inline constexpr int kQueries = 64, kKeys = 32;  // per tile
// The threads form 16 rows of 8. Thread (x, y) has the 4 x 4 scores of queries y + 16 i and keys 4 x + j. The
// 8 threads of a row are in one warp.
inline constexpr int kThreads = 128, kAcross = 8, kDown = 16;
// Rows in shared memory are padded, so that threads that read the same column of different rows use different
// banks.
inline constexpr int kWeightRow = kKeys + 4;
template <int D>
inline constexpr int kRow = D + 4;
inline constexpr int kWidest = sizeof(real) == 4 ? 128 : 64;

__device__ inline int across() { return static_cast<int>(threadIdx.x) % kAcross; }
__device__ inline int down() { return static_cast<int>(threadIdx.x) / kAcross; }
// Key 4 x + j of a tile is in row x + 8 j of shared memory. Adjacent scores thus belong to one thread, which
// draws their random words together, while the rows that a warp reads at the same time are adjacent.
__device__ inline int row_of_key(int key) { return key % 4 * kAcross + key / 4; }
__device__ inline int key_of_row(int row) { return row % kAcross * 4 + row / kAcross; }

template <int N>
struct alignas(N * sizeof(real) < 16 ? N * sizeof(real) : 16) Pack {
  real at[N];
};
template <int N>
__device__ inline Pack<N> pack(const real* x) {
  return *reinterpret_cast<const Pack<N>*>(x);
}

// The arguments of Attention, with its numbers in the types that the kernels use.
struct Problem : kernel::Attention {
  real factor, cap;    // scale and logit_softcap
  uint64_t threshold;  // dropout keeps a weight if its random word is at least this,
  real kept;           // and multiplies it by this
};

inline Problem problem_of(const kernel::Attention& a) {
  return {a, static_cast<real>(a.scale), static_cast<real>(a.logit_softcap), dropout_threshold(a.dropout),
          a.dropout < 1 ? static_cast<real>(1 / (1 - a.dropout)) : real(0)};
}

// The rows of one head, beginning with the first row of a tile.
struct Rows {
  const real* data;
  int64_t step;
  int count, width;
};

__device__ inline Rows rows_of(const real* x, const kernel::Heads& h, int batch, int head, int first,
                               int64_t rows, int64_t width) {
  return {x + batch * h.batch + head * h.head + first * h.row, h.row, static_cast<int>(rows) - first,
          static_cast<int>(width)};
}

// What a block owns: some rows, and a chunk of columns, of one head.
struct Place {
  int batch, head, first, column;
};

template <int D>
__host__ __device__ int chunks_of(int64_t width) {
  return width <= D ? 1 : static_cast<int>((width + D - 1) / D);
}

// The place of this block. The first blocks have the first tile of every head; if `last_first` is true, the
// last tile, since the last tiles see the most keys under a causal mask, and the longest blocks should start
// first.
template <int D>
__device__ inline Place place_of_block(int chunks, int64_t heads, int64_t batches, int rows,
                                       bool last_first) {
  const int all = chunks * static_cast<int>(heads) * static_cast<int>(batches);
  const int block = static_cast<int>(blockIdx.x), tile = block / all;
  const int at = last_first ? static_cast<int>(gridDim.x) / all - 1 - tile : tile;
  const int column = block % chunks, head = block / chunks % static_cast<int>(heads);
  return {block % all / chunks / static_cast<int>(heads), head, at * rows, column * D};
}

// The shared memory of a block. The forward pass has no tile of dy.
template <int D>
struct Tiles {
  real *weights, *k, *v, *q, *dy;

  __device__ explicit Tiles(real* shared)
      : weights(shared),
        k(weights + kQueries * kWeightRow),
        v(k + kKeys * kRow<D>),
        q(v + kKeys * kRow<D>),
        dy(q + kQueries * kRow<D>) {}
  static constexpr size_t bytes(int query_tiles) {
    return sizeof(real) * (kQueries * kWeightRow + (2 * kKeys + query_tiles * kQueries) * kRow<D>);
  }
};

// Loads D columns of a tile's rows, starting at `column`; fills missing rows and columns with 0.
template <int kCount, int D>
__device__ inline void load(real* tile, const Rows& x, int column) {
  const int c = static_cast<int>(threadIdx.x) % D;
  const bool exists = column + c < x.width;
  const real* from = x.data + column + c;
  for (int row = static_cast<int>(threadIdx.x) / D; row < kCount; row += kThreads / D) {
    const int to = kCount == kKeys ? row_of_key(row) : row;
    tile[to * kRow<D> + c] = exists && row < x.count ? from[row * x.step] : real(0);
  }
}

// s += q k^T over the first `columns` columns of two tiles.
template <int D>
__device__ inline void add_scores(const real* queries, const real* keys, int columns, real (&s)[4][4]) {
  for (int c = 0; c < columns; c += 4) {
    Pack<4> q[4], k[4];
    for (int n = 0; n < 4; ++n) {
      q[n] = pack<4>(queries + (down() + kDown * n) * kRow<D> + c);
      k[n] = pack<4>(keys + (across() + kAcross * n) * kRow<D> + c);
    }
#pragma unroll
    for (int n = 0; n < 4; ++n)
      for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 4; ++j) s[i][j] += q[i].at[n] * k[j].at[n];
  }
}

// s = q k^T, chunk by chunk. keep_q and keep_k: the tile is already loaded; ignored if there is more than one
// chunk.
template <int D>
__device__ inline void products(const Rows& q, const Rows& k, real* q_tile, real* k_tile, bool keep_q,
                                bool keep_k, real (&s)[4][4]) {
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) s[i][j] = 0;
  int column = 0;
  do {
    if (column > 0) __syncthreads();  // all threads have read the previous chunk
    if (!keep_q || q.width > D) load<kQueries, D>(q_tile, q, column);
    if (!keep_k || k.width > D) load<kKeys, D>(k_tile, k, column);
    __syncthreads();
    add_scores<D>(q_tile, k_tile, min(D, q.width - column), s);
    column += D;
  } while (column < q.width);
}

// out (64 queries, D) += weights (64 queries, 32 keys) * x (32 keys, D). A thread has columns 32 n + 4 x +
// (0..3).
template <int D>
__device__ inline void add_product(const real* weights, const real* x, real (&out)[4][D / 8]) {
  for (int j = 0; j < kKeys; j += 4) {
    Pack<4> w[4];
    for (int i = 0; i < 4; ++i) w[i] = pack<4>(weights + (down() + kDown * i) * kWeightRow + j);
    for (int c = 0; c < D / 8; c += 4)
      for (int n = 0; n < 4; ++n) {
        const Pack<4> b = pack<4>(x + (j + n) * kRow<D> + kAcross * c + 4 * across());
        for (int i = 0; i < 4; ++i)
          for (int m = 0; m < 4; ++m) out[i][c + m] += w[i].at[n] * b.at[m];
      }
  }
}

// out (32 keys, D) += weights^T (32 keys, 64 queries) * x (64 queries, D). Here the threads form 8 rows of
// 16, and a thread has the keys in rows 4 y + (0..3) of a tile.
template <int D>
__device__ inline void add_transposed(const real* weights, const real* x, int queries,
                                      real (&out)[4][D / 16]) {
  constexpr int kPack = D / 16 < 4 ? D / 16 : 4;
  const int column = static_cast<int>(threadIdx.x) % 16 * kPack, row = static_cast<int>(threadIdx.x) / 16 * 4;
  for (int i = 0; i < queries; ++i) {
    const Pack<4> w = pack<4>(weights + i * kWeightRow + row);
    for (int c = 0; c < D / 16; c += kPack) {
      const Pack<kPack> b = pack<kPack>(x + i * kRow<D> + 16 * c + column);
      for (int n = 0; n < 4; ++n)
        for (int m = 0; m < kPack; ++m) out[n][c + m] += w.at[n] * b.at[m];
    }
  }
}

// Reduces over the 8 threads of a row of scores.
template <class T, class F>
__device__ inline T row_reduce(T v, F f) {
  for (int o = kAcross / 2; o > 0; o /= 2) v = f(v, __shfl_xor_sync(kAllLanes, v, o));
  return v;
}

// Whether any query of the tile at i may see any key of the tile at j by position.
__device__ inline bool tiles_meet(const Problem& a, int i, int j) {
  const int queries = static_cast<int>(a.queries), keys = static_cast<int>(a.keys);
  const int window = static_cast<int>(a.window);
  const int most = min(i + kQueries, queries) - 1 + keys - queries - j;
  const int least = i + keys - queries - (min(j + kKeys, keys) - 1);
  return (!a.causal || most >= 0) && (window == 0 || (least < window && most > -window));
}

__device__ inline bool hidden(const Problem& a, int batch, int i, int j) {
  const int queries = static_cast<int>(a.queries), keys = static_cast<int>(a.keys);
  const int window = static_cast<int>(a.window), distance = i + keys - queries - j;
  if (i >= queries || j >= keys || (a.causal && distance < 0)) return true;
  if (window > 0 && (distance >= window || distance <= -window)) return true;
  if (a.padding_mask && a.padding_mask[batch * a.keys + j] == 0) return true;
  return a.query_segment_ids &&
         a.query_segment_ids[batch * a.queries + i] != a.key_segment_ids[batch * a.keys + j];
}

// A score and its derivative `slope` with respect to scale * q k^T: 1 - tanh^2 if there is a softcap, else 1.
struct Score {
  real value, slope;
};

__device__ inline Score score(const Problem& a, int batch, int head, int i, int j, real product) {
  Score s{a.factor * product, 1};
  if (a.cap > 0) {
    const real t = math::tanh(s.value / a.cap);
    s = {a.cap * t, 1 - t * t};
  }
  if (hidden(a, batch, i, j)) return {-math::infinity<real>, s.slope};
  const int distance = i + static_cast<int>(a.keys) - static_cast<int>(a.queries) - j;
  if (a.slopes) s.value -= static_cast<const real*>(a.slopes)[head] * static_cast<real>(distance);
  if (a.bias) {
    const int64_t(&step)[4] = a.bias_step;
    s.value += static_cast<const real*>(a.bias)[batch * step[0] + head * step[1] + i * step[2] + j * step[3]];
  }
  return s;
}

// The dropout factors of the weights of query i and keys j ... j + 3; 0 for a dropped weight. Their random
// words are in one or two Philox blocks.
__device__ inline void draw(const Problem& a, int batch, int head, int i, int j, real (&factor)[4]) {
  for (int n = 0; n < 4; ++n) factor[n] = 1;
  if (a.threshold == 0) return;
  const uint64_t first =
      static_cast<uint64_t>(((batch * a.all_heads + a.first_head + head) * a.queries + i) * a.keys + j);
  const int skip = static_cast<int>(first % 4);
  const Philox here = philox(a.key, first / 4), next = skip ? philox(a.key, first / 4 + 1) : here;
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    uint32_t word = here.word[n];
#pragma unroll
    for (int o = 1; o < 4; ++o)
      if (skip == o) word = n + o < 4 ? here.word[(n + o) % 4] : next.word[(n + o) % 4];
    factor[n] = word >= a.threshold ? a.kept : real(0);
  }
}

__device__ inline real dropped(real x, real factor) { return factor > 0 ? x * factor : real(0); }

inline const real* in(const kernel::Heads& h) { return static_cast<const real*>(h.data); }
inline real* out(const kernel::Heads& h) { return static_cast<real*>(h.data); }

// Whether a block can have this much shared memory. If not, a smaller D is used and heads are split into
// chunks.
inline bool holds(size_t smem) { return smem <= shared_memory(); }

template <class... P, class... A>
void launch_tiles(int64_t blocks, size_t smem, void (*kernel)(P...), A&&... args) {
  if (blocks == 0) return;
  const gpu::Grid grid{static_cast<unsigned>(blocks), kThreads, smem, stream()};
  gpu::allow_smem(kernel, smem);
  gpu::launch(grid, kernel, std::forward<A>(args)...);
}

}  // namespace bonsai::cuda::BONSAI_LEVEL
