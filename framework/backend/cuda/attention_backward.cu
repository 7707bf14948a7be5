// Attention, backward: see attention.h.
#include "bonsai/framework/backend/cuda/attention.h"

namespace bonsai::cuda::BONSAI_LEVEL {
namespace {

// Blocks per multiprocessor, which bounds the registers per thread. With these numbers no kernel spills.
template <int D>
constexpr int kBackwardBlocks = sizeof(real) == 8 || D > 64 ? 2 : 3;

// The inputs of the gradients.
struct Given {
  const real *q, *k, *v, *dy, *stats;
};

// The statistics of a query: p = e^(s - top) scale, and `mean` = sum(p dp).
struct Row {
  real top, scale;
  double mean;
};

__device__ int64_t row_index(const Problem& a, int batch, int head, int query) {
  return (batch * a.heads + head) * a.queries + query;
}

// `means` may be null; the means are then 0.
__device__ void read_rows(const Problem& a, const real* stats, const double* means, int batch, int head,
                          int first, Row (&rows)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int query = first + down() + kDown * i;
    rows[i] = {0, 1, 0};  // for a row of only -inf and for a missing row: all weights are 0
    if (query >= a.queries) continue;
    const int64_t row = row_index(a, batch, head, query);
    if (stats[2 * row] != -math::infinity<real>)
      rows[i].top = stats[2 * row], rows[i].scale = 1 / stats[2 * row + 1];
    if (means) rows[i].mean = means[row];
  }
}

struct Tile {
  int batch, head, query, key;  // `query` and `key` are its first ones
};

// s = q k^T and dp = dy v^T of one tile.
template <int D>
__device__ void both_products(const Problem& a, const kernel::Heads& dy, const Given& given, const Tile& t,
                              const Tiles<D>& tiles, bool keep_queries, bool keep_keys, real (&s)[4][4],
                              real (&dp)[4][4]) {
  const int kv_head = t.head / static_cast<int>(a.heads / a.kv_heads);
  __syncthreads();  // all threads have read the previous tiles
  products<D>(rows_of(given.q, a.q, t.batch, t.head, t.query, a.queries, a.d_k),
              rows_of(given.k, a.k, t.batch, kv_head, t.key, a.keys, a.d_k), tiles.q, tiles.k, keep_queries,
              keep_keys, s);
  products<D>(rows_of(given.dy, dy, t.batch, t.head, t.query, a.queries, a.d_v),
              rows_of(given.v, a.v, t.batch, kv_head, t.key, a.keys, a.d_v), tiles.dy, tiles.v, keep_queries,
              keep_keys, dp);
}

// Calls f(i, j, p, dp, factor, slope) for each of a thread's scores: the weight p, its gradient dp including
// dropout, its dropout factor, and the derivative of the softcap.
template <class F>
__device__ void each_weight(const Problem& a, const Tile& t, const Row (&rows)[4], const real (&s)[4][4],
                            const real (&dp)[4][4], F f) {
  const int key = t.key + 4 * across();
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int query = t.query + down() + kDown * i;
    real factor[4];
    draw(a, t.batch, t.head, query, key, factor);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const Score c = score(a, t.batch, t.head, query, key + j, s[i][j]);
      const real p = math::exp(c.value - rows[i].top) * rows[i].scale;
      f(i, j, p, dropped(dp[i][j], factor[j]), factor[j], c.slope);
    }
  }
}

// ds = p (dp - mean). In double, because the difference cancels if one p is nearly 1.
__device__ real score_gradient(real p, real dp, const Row& row) {
  return static_cast<real>((static_cast<double>(dp) - row.mean) * static_cast<double>(p));
}

// The means sum(p dp) of a block's queries; in f32 divided by sum(p), which is 1 only up to rounding.
template <int D>
__device__ void find_means(const Problem& a, const kernel::Heads& dy, const Given& given, const Place& at,
                           const Tiles<D>& tiles, Row (&rows)[4]) {
  double sum[4] = {}, total[4] = {};
  bool loaded = false;
  for (int j = 0; j < a.keys; j += kKeys) {
    if (!tiles_meet(a, at.first, j)) continue;
    const Tile t{at.batch, at.head, at.first, j};
    real s[4][4], dp[4][4];
    both_products<D>(a, dy, given, t, tiles, loaded, false, s, dp);
    loaded = true;
    each_weight(a, t, rows, s, dp, [&](int i, int, real p, real d, real, real) {
      sum[i] += static_cast<double>(p) * static_cast<double>(d);
      total[i] += static_cast<double>(p);
    });
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const double all = row_reduce(sum[i], Sum{}), weight = row_reduce(total[i], Sum{});
    rows[i].mean = sizeof(real) < sizeof(double) && weight > 0 ? all / weight : all;
  }
}

// dq = scale ds k. Also writes the means, which the next kernels read.
template <int D>
__global__ void __launch_bounds__(kThreads, kBackwardBlocks<D>)
    query_gradients(Problem a, kernel::AttentionGradients d, const real* q, const real* k, const real* v,
                    const real* dy, const real* stats, double* means, real* dq) {
  GPU_DYN_SMEM(real, shared);
  const Tiles<D> tiles(shared);
  const Given given{q, k, v, dy, stats};
  const Place at = place_of_block<D>(chunks_of<D>(a.d_k), a.heads, a.batch, kQueries, true);
  Row rows[4];
  read_rows(a, stats, nullptr, at.batch, at.head, at.first, rows);
  find_means<D>(a, d.dy, given, at, tiles, rows);
  real out[4][D / 8] = {};
  for (int j = 0; j < a.keys; j += kKeys) {
    if (!tiles_meet(a, at.first, j)) continue;
    const Tile t{at.batch, at.head, at.first, j};
    real s[4][4], dp[4][4];
    both_products<D>(a, d.dy, given, t, tiles, true, false, s, dp);
    each_weight(a, t, rows, s, dp, [&](int i, int j, real p, real dp, real, real slope) {
      tiles.weights[(down() + kDown * i) * kWeightRow + across() + kAcross * j] =
          score_gradient(p, dp, rows[i]) * slope;
    });
    if (a.d_k > D) {
      __syncthreads();
      load<kKeys, D>(
          tiles.k,
          rows_of(k, a.k, t.batch, t.head / static_cast<int>(a.heads / a.kv_heads), j, a.keys, a.d_k),
          at.column);
    }
    __syncthreads();
    add_product<D>(tiles.weights, tiles.k, out);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int query = at.first + down() + kDown * i;
    if (query >= a.queries) continue;
    if (across() == 0 && at.column == 0) means[row_index(a, at.batch, at.head, query)] = rows[i].mean;
    real* own = dq + at.batch * d.dq.batch + at.head * d.dq.head + query * d.dq.row;
    for (int c = 0; c < D / 8; ++c) {
      const int column = at.column + c / 4 * kKeys + 4 * across() + c % 4;
      if (column < a.d_k) own[column] = out[i][c] * a.factor;
    }
  }
}

// Stores columns of a block's keys from the layout of add_transposed.
template <int D>
__device__ void store_keys(const real (&x)[4][D / 16], real factor, const Place& at, int64_t keys,
                           int64_t width, const kernel::Heads& h, real* out) {
  constexpr int kPack = D / 16 < 4 ? D / 16 : 4;
  for (int n = 0; n < 4; ++n) {
    const int64_t key = at.first + key_of_row(static_cast<int>(threadIdx.x) / 16 * 4 + n);
    real* own = out + at.batch * h.batch + at.head * h.head + key * h.row;
    for (int c = 0; c < D / 16; ++c) {
      const int column =
          at.column + 16 * (c / kPack * kPack) + static_cast<int>(threadIdx.x) % 16 * kPack + c % kPack;
      if (key < keys && column < width) own[column] = x[n][c] * factor;
    }
  }
}

// dv = (m p)^T dy with the dropout mask m, and dk = scale ds^T q. The head of `at` is a key/value head.
template <int D>
__global__ void __launch_bounds__(kThreads, kBackwardBlocks<D>)
    key_gradients(Problem a, kernel::AttentionGradients d, const real* q, const real* k, const real* v,
                  const real* dy, const real* stats, const double* means, real* dk, real* dv) {
  GPU_DYN_SMEM(real, shared);
  const Tiles<D> tiles(shared);
  const Given given{q, k, v, dy, stats};
  const Place at =
      place_of_block<D>(chunks_of<D>(a.d_k > a.d_v ? a.d_k : a.d_v), a.kv_heads, a.batch, kKeys, false);
  const int group = static_cast<int>(a.heads / a.kv_heads), queries = static_cast<int>(a.queries);
  real own_dk[4][D / 16] = {}, own_dv[4][D / 16] = {};
  bool loaded = false;
  for (int head = at.head * group; head < (at.head + 1) * group; ++head)
    for (int i = 0; i < queries; i += kQueries) {
      if (!tiles_meet(a, i, at.first)) continue;
      const Tile t{at.batch, head, i, at.first};
      const int count = min(kQueries, queries - i);
      Row rows[4];
      real s[4][4], ds[4][4];
      read_rows(a, stats, means, t.batch, head, i, rows);
      both_products<D>(a, d.dy, given, t, tiles, false, loaded, s, ds);
      loaded = true;
      real* const weights = tiles.weights + down() * kWeightRow + across();
      each_weight(a, t, rows, s, ds, [&](int i, int j, real p, real dp, real factor, real slope) {
        weights[kDown * i * kWeightRow + kAcross * j] = dropped(p, factor);
        ds[i][j] = score_gradient(p, dp, rows[i]) * slope;
      });
      __syncthreads();
      if (a.d_v > D) {
        load<kQueries, D>(tiles.dy, rows_of(dy, d.dy, t.batch, head, i, queries, a.d_v), at.column);
        __syncthreads();
      }
      add_transposed<D>(tiles.weights, tiles.dy, count, own_dv);
      __syncthreads();
      for (int n = 0; n < 4; ++n)
        for (int m = 0; m < 4; ++m) weights[kDown * n * kWeightRow + kAcross * m] = ds[n][m];
      if (a.d_k > D) load<kQueries, D>(tiles.q, rows_of(q, a.q, t.batch, head, i, queries, a.d_k), at.column);
      __syncthreads();
      add_transposed<D>(tiles.weights, tiles.q, count, own_dk);
    }
  store_keys<D>(own_dk, a.factor, at, a.keys, a.d_k, d.dk, dk);
  store_keys<D>(own_dv, 1, at, a.keys, a.d_v, d.dv, dv);
}

// Adds the sums of a block's tile to its part of dbias. If keys or queries share an element of the bias,
// first sums over them: over keys before queries, because a row of ds sums to 0.
__device__ void add_to_bias(const Problem& a, const Tile& t, const real (&sums)[4][4], real* tile,
                            real* dbias) {
  const int64_t(&step)[4] = a.bias_step;
  const int own = static_cast<int>(threadIdx.x), rows = step[2] ? kQueries : 1, columns = step[3] ? kKeys : 1;
  __syncthreads();
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) tile[(down() + kDown * i) * kWeightRow + across() + kAcross * j] = sums[i][j];
  __syncthreads();
  if (columns == 1 && own < kQueries)
    for (int j = 1; j < kKeys; ++j) tile[own * kWeightRow] += tile[own * kWeightRow + j];
  __syncthreads();
  if (rows == 1 && own < columns)
    for (int i = 1; i < kQueries; ++i) tile[own] += tile[i * kWeightRow + own];
  __syncthreads();
  for (int n = own; n < rows * columns; n += kThreads) {
    const int64_t query = t.query + n / columns, key = t.key + key_of_row(n % columns);
    if (query < a.queries && key < a.keys)
      dbias[t.batch * step[0] + t.head * step[1] + query * step[2] + key * step[3]] +=
          tile[n / columns * kWeightRow + n % columns];
  }
}

// A block's range of indices along one axis: one tile if the bias has this axis, else all of the axis.
struct Walk {
  int begin, end, step;
};
__device__ Walk walk(int64_t bias_step, int own, int64_t size, int each) {
  if (bias_step == 0) return {0, static_cast<int>(size), each};
  return {own * each, own * each + 1, each};
}

// dbias += ds. A block owns one tile of one head of the bias, and covers all of an axis over which the bias
// is broadcast.
template <int D>
__global__ void __launch_bounds__(kThreads, kBackwardBlocks<D>)
    bias_gradients(Problem a, kernel::AttentionGradients d, const real* q, const real* k, const real* v,
                   const real* dy, const real* stats, const double* means, real* dbias, int batches,
                   int heads, int key_tiles) {
  GPU_DYN_SMEM(real, shared);
  const Tiles<D> tiles(shared);
  const Given given{q, k, v, dy, stats};
  const int block = static_cast<int>(blockIdx.x), outer = block / key_tiles / heads;
  const Walk keys = walk(a.bias_step[3], block % key_tiles, a.keys, kKeys);
  const Walk over_heads = walk(a.bias_step[1], block / key_tiles % heads, a.heads, 1);
  const Walk over_batch = walk(a.bias_step[0], outer % batches, a.batch, 1);
  const Walk queries = walk(a.bias_step[2], outer / batches, a.queries, kQueries);
  real sums[4][4] = {};
  Tile t{};
  for (t.batch = over_batch.begin; t.batch < over_batch.end; ++t.batch)
    for (t.head = over_heads.begin; t.head < over_heads.end; ++t.head)
      for (t.query = queries.begin; t.query < queries.end; t.query += kQueries)
        for (t.key = keys.begin; t.key < keys.end; t.key += kKeys) {
          if (!tiles_meet(a, t.query, t.key)) continue;
          Row rows[4];
          real s[4][4], dp[4][4];
          read_rows(a, stats, means, t.batch, t.head, t.query, rows);
          both_products<D>(a, d.dy, given, t, tiles, false, false, s, dp);
          each_weight(a, t, rows, s, dp, [&](int i, int j, real p, real dp, real, real) {
            sums[i][j] += score_gradient(p, dp, rows[i]);
          });
        }
  add_to_bias(a, {over_batch.begin, over_heads.begin, queries.begin, keys.begin}, sums, tiles.weights, dbias);
}

template <int D>
void backward(const kernel::Attention& a, const kernel::AttentionGradients& d) {
  const int64_t query_tiles = gpu::ceil_div(a.queries, kQueries), key_tiles = gpu::ceil_div(a.keys, kKeys);
  const size_t smem = Tiles<D>::bytes(2);
  const real *q = in(a.q), *k = in(a.k), *v = in(a.v), *dy = in(d.dy), *stats = static_cast<real*>(a.stats);
  Scratch scratch((a.batch * a.heads * a.queries + 1) * static_cast<int64_t>(sizeof(double)));
  double* means = scratch.as<double>();
  launch_tiles(query_tiles * a.batch * a.heads * chunks_of<D>(a.d_k), smem, query_gradients<D>, problem_of(a),
               d, q, k, v, dy, stats, means, out(d.dq));
  launch_tiles(key_tiles * a.batch * a.kv_heads * chunks_of<D>(a.d_k > a.d_v ? a.d_k : a.d_v), smem,
               key_gradients<D>, problem_of(a), d, q, k, v, dy, stats, means, out(d.dk), out(d.dv));
  if (!d.dbias || a.batch * a.heads * a.queries * a.keys == 0) return;
  const int64_t batches = a.bias_step[0] ? a.batch : 1, heads = a.bias_step[1] ? a.heads : 1;
  const int64_t across = a.bias_step[3] ? key_tiles : 1, down = a.bias_step[2] ? query_tiles : 1;
  launch_tiles(batches * heads * across * down, smem, bias_gradients<D>, problem_of(a), d, q, k, v, dy, stats,
               means, static_cast<real*>(d.dbias), batches, heads, across);
}

}  // namespace

void attention_backward(const kernel::Attention& a, const kernel::AttentionGradients& d) {
  const int64_t width = a.d_k > a.d_v ? a.d_k : a.d_v;
  if (width <= 32 || !holds(Tiles<64>::bytes(2))) return backward<32>(a, d);
  width <= 64 || !holds(Tiles<kWidest>::bytes(2)) ? backward<64>(a, d) : backward<kWidest>(a, d);
}

}  // namespace bonsai::cuda::BONSAI_LEVEL
