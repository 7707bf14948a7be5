// Attention, forward: see attention.h.
#include "bonsai/framework/backend/cuda/attention.h"

namespace bonsai::cuda::BONSAI_LEVEL {
namespace {

// Blocks per multiprocessor, which bounds the registers per thread. With these numbers no kernel spills.
template <int D>
constexpr int kForwardBlocks = sizeof(real) == 8 || D > 64 ? 2 : 3;

// A thread's running maximum, sum and result of its four queries.
template <int D>
struct Running {
  real top[4], sum[4], out[4][D / 8];  // `sum` covers only this thread's keys
};

// Turns products into exponentials in shared memory and rescales the running values. The maximum ignores NaN,
// but the sum becomes NaN. While the maximum is -inf, nothing is subtracted.
template <int D>
__device__ void soften(const Problem& a, const Place& at, int first_key, real (&s)[4][4], Running<D>& r,
                       real* weights) {
  const int key = first_key + 4 * across();
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = down() + kDown * i, query = at.first + row;
    real top = r.top[i], factor[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      s[i][j] = score(a, at.batch, at.head, query, key + j, s[i][j]).value;
      top = Max{}(top, s[i][j]);
    }
    top = row_reduce(top, Max{});
    const real base = top == -math::infinity<real> ? real(0) : top;
    const real fade = top == r.top[i] ? real(1) : math::exp(r.top[i] - top);
    r.top[i] = top;
    r.sum[i] *= fade;
    for (int c = 0; c < D / 8; ++c) r.out[i][c] *= fade;
    draw(a, at.batch, at.head, query, key, factor);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const real e = math::exp(s[i][j] - base);
      r.sum[i] += e;
      weights[row * kWeightRow + across() + kAcross * j] = dropped(e, factor[j]);
    }
  }
}

template <int D>
__global__ void __launch_bounds__(kThreads, kForwardBlocks<D>)
    attend(Problem a, const real* q, const real* k, const real* v, real* y, real* stats) {
  GPU_DYN_SMEM(real, shared);
  const Tiles<D> tiles(shared);
  const Place at = place_of_block<D>(chunks_of<D>(a.d_v), a.heads, a.batch, kQueries, true);
  const int kv_head = at.head / static_cast<int>(a.heads / a.kv_heads);
  const Rows queries = rows_of(q, a.q, at.batch, at.head, at.first, a.queries, a.d_k);
  Running<D> r;
  for (int i = 0; i < 4; ++i) {
    r.top[i] = -math::infinity<real>, r.sum[i] = 0;
    for (int c = 0; c < D / 8; ++c) r.out[i][c] = 0;
  }
  bool loaded = false;
  for (int j = 0; j < a.keys; j += kKeys) {
    if (!tiles_meet(a, at.first, j)) continue;
    __syncthreads();  // all threads have read the previous tiles
    load<kKeys, D>(tiles.v, rows_of(v, a.v, at.batch, kv_head, j, a.keys, a.d_v), at.column);
    real s[4][4];
    products<D>(queries, rows_of(k, a.k, at.batch, kv_head, j, a.keys, a.d_k), tiles.q, tiles.k, loaded,
                false, s);
    loaded = true;
    soften<D>(a, at, j, s, r, tiles.weights);
    __syncwarp();  // each row is written and read by one warp
    add_product<D>(tiles.weights, tiles.v, r.out);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int query = at.first + down() + kDown * i;
    const real sum = row_reduce(r.sum[i], Sum{});
    if (query >= a.queries) continue;
    const bool empty = r.top[i] == -math::infinity<real>;  // the sum is then 0, or NaN if a score is NaN
    const real factor = empty ? sum : 1 / sum;
    real* out = y + at.batch * a.y.batch + at.head * a.y.head + query * a.y.row;
    for (int c = 0; c < D / 8; ++c) {
      const int column = at.column + c / 4 * kKeys + 4 * across() + c % 4;
      if (column < a.d_v) out[column] = r.out[i][c] * factor;
    }
    if (across() > 0 || at.column > 0) continue;
    real* own = stats + 2 * ((at.batch * a.heads + at.head) * a.queries + query);
    own[0] = r.top[i], own[1] = empty ? real(0) : sum;
  }
}

template <int D>
void forward(const kernel::Attention& a) {
  const int64_t blocks = gpu::ceil_div(a.queries, kQueries) * a.batch * a.heads * chunks_of<D>(a.d_v);
  launch_tiles(blocks, Tiles<D>::bytes(1), attend<D>, problem_of(a), in(a.q), in(a.k), in(a.v), out(a.y),
               static_cast<real*>(a.stats));
}

}  // namespace

void attention(const kernel::Attention& a) {
  const int64_t width = a.d_k > a.d_v ? a.d_k : a.d_v;
  if (width <= 32 || !holds(Tiles<64>::bytes(1))) return forward<32>(a);
  width <= 64 || !holds(Tiles<kWidest>::bytes(1)) ? forward<64>(a) : forward<kWidest>(a);
}

}  // namespace bonsai::cuda::BONSAI_LEVEL
