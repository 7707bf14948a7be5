// Attention in tiles of queries: the scores of a tile against all keys it sees live in scratch, so no
// (Tq, Tk) tensor exists. Operands are read by batch, head and row strides, never permuted. Backward
// recomputes a tile's weights from each row's largest score and sum of exponentials.
#include "framework/backend/cpu/gemm.h"
#include "framework/backend/cpu/loops.h"

namespace bonsai::cpu::BONSAI_LEVEL {
namespace {

constexpr int64_t kQueryTile = 64;

real* rows_at(const Heads& h, int64_t batch, int64_t head, int64_t row) {
  return static_cast<real*>(h.data) + batch * h.batch + head * h.head + row * h.row;
}

// Some queries of one head.
struct Tile {
  const Attention& a;
  int64_t batch, head, first, rows;

  int64_t seen(int64_t i) const {  // keys that query first + i may attend to by position
    return a.causal ? larger(0, smaller(a.keys, first + i + 1 + a.keys - a.queries)) : a.keys;
  }
  int64_t width() const { return seen(rows - 1); }
  int64_t row(int64_t i) const { return (batch * a.heads + head) * a.queries + first + i; }
  real* stats(int64_t i) const { return static_cast<real*>(a.stats) + 2 * row(i); }
  real* at(const Heads& h) const { return rows_at(h, batch, head, first); }
  real* all(const Heads& h) const { return rows_at(h, batch, head, 0); }
};

// scores (rows, width) = scale * q k^T + mask; -inf beyond what a query sees.
void score(const Tile& t, real* scores) {
  const Attention& a = t.a;
  const int64_t width = t.width();
  multiply(t.rows, width, a.d_k, static_cast<real>(a.scale), t.at(a.q), a.q.row, false, t.all(a.k),
           a.k.row, true, real(0), scores, width);
  for (int64_t i = 0; i < t.rows; ++i) {
    real* s = scores + i * width;
    if (a.mask) {
      const real* mask = static_cast<const real*>(a.mask) + t.batch * a.mask_step[0] +
                         t.head * a.mask_step[1] + (t.first + i) * a.mask_step[2];
      for (int64_t j = 0; j < width; ++j) s[j] += mask[j * a.mask_step[3]];
    }
    fill(s + t.seen(i), width - t.seen(i), -math::infinity<real>);
  }
}

// Row i of the scores becomes weights, given its largest score and sum of exponentials.
void weigh(real* s, int64_t width, const real* stats) {
  if (stats[0] == -math::infinity<real>) return fill(s, width, empty_weight(s, width));
  const real top = stats[0], scale = 1 / stats[1];
  for (int64_t j = 0; j < width; ++j) s[j] = math::exp(s[j] - top) * scale;
}

// out[j] = weights[j] dropped or scaled up.
void drop(const Tile& t, int64_t i, const real* weights, real* out, int64_t width) {
  const uint64_t threshold = dropout_threshold(t.a.dropout);
  const real keep = t.a.dropout < 1 ? static_cast<real>(1 / (1 - t.a.dropout)) : real(0);
  const uint64_t start = static_cast<uint64_t>(t.row(i) * t.a.keys);
  for (int64_t j = 0; j < width; ++j)
    out[j] = random_word(t.a.key, start + static_cast<uint64_t>(j)) >= threshold ? weights[j] * keep : real(0);
}

void forward_tile(const Tile& t, real* scores) {
  const Attention& a = t.a;
  const int64_t width = t.width();
  real* y = t.at(a.y);
  if (width == 0) {
    for (int64_t i = 0; i < t.rows; ++i) {
      fill(y + i * a.y.row, a.d_v, 0);
      t.stats(i)[0] = -math::infinity<real>, t.stats(i)[1] = 0;
    }
    return;
  }
  score(t, scores);
  for (int64_t i = 0; i < t.rows; ++i) {
    real* s = scores + i * width;
    const real top = max_of(s, width);
    real sum = 0;
    if (top != -math::infinity<real>) {
#pragma omp simd reduction(+ : sum)
      for (int64_t j = 0; j < width; ++j) sum += math::exp(s[j] - top);
    }
    t.stats(i)[0] = top, t.stats(i)[1] = sum;
    weigh(s, width, t.stats(i));
    if (a.dropout > 0) drop(t, i, s, s, width);
  }
  multiply(t.rows, a.d_v, width, real(1), scores, width, false, t.all(a.v), a.v.row, false,
           real(0), y, a.y.row);
}

// With p the weights and m the dropout mask: dv += (m p)^T dy, dp = m (dy v^T),
// ds = p (dp - sum(p dp)), dq = scale ds k, dk += scale ds^T q.
void backward_tile(const Tile& t, const AttentionGradients& d, real* scratch) {
  const Attention& a = t.a;
  const int64_t width = t.width();
  if (width == 0) {
    for (int64_t i = 0; i < t.rows; ++i) fill(t.at(d.dq) + i * d.dq.row, a.d_k, 0);
    return;
  }
  real* p = scratch;
  real* ds = scratch + t.rows * width;
  score(t, p);
  for (int64_t i = 0; i < t.rows; ++i) {
    weigh(p + i * width, width, t.stats(i));
    if (a.dropout > 0) drop(t, i, p + i * width, ds + i * width, width);
  }
  multiply(width, a.d_v, t.rows, real(1), a.dropout > 0 ? ds : p, width, true, t.at(d.dy), d.dy.row,
           false, real(1), t.all(d.dv), d.dv.row);
  multiply(t.rows, width, a.d_v, real(1), t.at(d.dy), d.dy.row, false, t.all(a.v), a.v.row, true,
           real(0), ds, width);
  for (int64_t i = 0; i < t.rows; ++i) {
    real* s = ds + i * width;
    if (a.dropout > 0) drop(t, i, s, s, width);
    softmax_gradient(p + i * width, s, s, width);
  }
  const real scale = static_cast<real>(a.scale);
  multiply(t.rows, a.d_k, width, scale, ds, width, false, t.all(a.k), a.k.row, false, real(0),
           t.at(d.dq), d.dq.row);
  multiply(width, a.d_k, t.rows, scale, ds, width, true, t.at(a.q), a.q.row, false, real(1),
           t.all(d.dk), d.dk.row);
}

}  // namespace

void attention(const Attention& a) {
  const int64_t tiles = tiles_of(a.queries, kQueryTile);
  const int64_t most = smaller(kQueryTile, a.queries) * a.keys;
  run_tiles_with_scratch(a.batch * a.heads * tiles, most, [&](int64_t t, real* scratch) {
    const int64_t first = t % tiles * kQueryTile, entry = t / tiles;
    forward_tile({a, entry / a.heads, entry % a.heads, first, smaller(kQueryTile, a.queries - first)}, scratch);
  });
}

// A head's tiles run in order, because they add to the same keys and values.
void attention_backward(const Attention& a, const AttentionGradients& d) {
  const int64_t most = 2 * smaller(kQueryTile, a.queries) * a.keys;
  run_tiles_with_scratch(a.batch * a.heads, most, [&](int64_t entry, real* scratch) {
    const int64_t batch = entry / a.heads, head = entry % a.heads;
    for (int64_t j = 0; j < a.keys; ++j) {
      fill(rows_at(d.dk, batch, head, j), a.d_k, 0);
      fill(rows_at(d.dv, batch, head, j), a.d_v, 0);
    }
    for (int64_t first = 0; first < a.queries; first += kQueryTile)
      backward_tile({a, batch, head, first, smaller(kQueryTile, a.queries - first)}, d, scratch);
  });
}

}  // namespace bonsai::cpu::BONSAI_LEVEL
