// Attention in tiles of queries: a tile's scores for its visible keys are in scratch memory, so no (Tq, Tk)
// tensor exists. Operands are read with batch, head and row strides and never permuted. The backward pass
// recomputes a tile's weights from each row's largest score and sum of exponentials.
#include "bonsai/framework/backend/cpu/product.h"

namespace bonsai::cpu::BONSAI_LEVEL {
namespace {

constexpr int64_t kMaxRows = 64;

// Queries per tile. Fewer if there are many keys, so that a tile has at most 32 K scores. A BLAS cannot skip
// what a causal mask hides; tiles of fewer rows contain fewer hidden scores.
int64_t tile_rows(const kernel::Attention& a) {
  const int64_t most = a.causal && a.keys <= 128 && !prefers_own() ? 24 : kMaxRows;
  return smaller(smaller(most, larger(8, 32768 / larger(1, a.keys))), larger(1, a.queries));
}

real* rows_at(const kernel::Heads& h, int64_t batch, int64_t head, int64_t row) {
  return static_cast<real*>(h.data) + batch * h.batch + head * h.head + row * h.row;
}

// Some queries of one head and `width` keys: from the first to the last key that one of them may see by
// position. A table (scores, weights or their gradients) has a row per query with `stride` elements, a
// multiple of kLanes; the first `width` belong to keys.
class Tile {
 public:
  const kernel::Attention& a;
  const int64_t batch, head, first, rows;

 private:
  const int64_t position_ = first + a.keys - a.queries;  // position of the first query among all keys
  // By position, a query at p may see keys [p - before_, p + after_).
  const int64_t before_ = a.window > 0 ? a.window - 1 : a.keys + a.queries;
  const int64_t after_ = a.causal ? 1 : a.window > 0 ? a.window : a.keys + a.queries;

 public:
  const int64_t from = smaller(a.keys, larger(0, position_ - before_));
  const int64_t width = larger(0, smaller(a.keys, position_ + rows - 1 + after_) - from),
                stride = whole_vectors(width);

  Tile(const kernel::Attention& attention, int64_t batch, int64_t head, int64_t first, int64_t rows)
      : a(attention), batch(batch), head(head), first(first), rows(rows) {}

  // Column of the key at query i's position.
  int64_t position(int64_t i) const { return position_ - from + i; }
  // The columns that query i may see by position; used() extends them to whole vectors.
  Range seen(int64_t i) const {
    const int64_t first = smaller(width, larger(0, position(i) - before_));
    return {first, larger(first, smaller(width, position(i) + after_))};
  }
  Range used(int64_t i) const {
    const Range r = seen(i);
    return {r.begin / kLanes * kLanes, whole_vectors(r.end)};
  }
  Band band(Band::Of of) const { return {of, position(0) - before_, position(0) + after_}; }
  int64_t kv_head() const { return head / (a.heads / a.kv_heads); }
  int64_t row(int64_t i) const { return (batch * a.heads + head) * a.queries + first + i; }
  // The row counted over all `all_heads` heads.
  int64_t row_of_all(int64_t i) const {
    return (batch * a.all_heads + a.first_head + head) * a.queries + first + i;
  }
  real* stats(int64_t i) const { return static_cast<real*>(a.stats) + 2 * row(i); }
  real* at(const kernel::Heads& h) const { return rows_at(h, batch, head, first); }
  real* keys(const kernel::Heads& h) const { return rows_at(h, batch, kv_head(), from); }
};

// out = cap(scale * q k^T). This and the functions below fill only the used() columns of a row; in all other
// columns, weights and their gradients are zero.
void raw_scores(const Tile& t, real* out) {
  const kernel::Attention& a = t.a;
  const int64_t stride = t.stride;
  product({t.rows, t.width, a.d_k, t.at(a.q), a.q.row, false, t.keys(a.k), a.k.row, true, out, stride,
           nullptr, t.band(Band::c)},
          static_cast<real>(a.scale), false);
  if (a.logit_softcap <= 0) return;
  const real cap = static_cast<real>(a.logit_softcap);
  for (int64_t i = 0; i < t.rows; ++i) {
    real* s = out + i * stride;
    const Range seen = t.seen(i);
    for (int64_t j = seen.begin; j < seen.end; ++j) s[j] = cap * math::tanh(s[j] / cap);
  }
}

constexpr real kLane[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

// Sets the elements of a row that are in `used` but not in `seen`; they are in the first and the last vector.
[[gnu::always_inline]] inline void fill_ends(Range seen, Range used, real* row, real value) {
  const auto fill_end = [&](int64_t v) {
    const Vector lane = load(kLane);
    const auto inside =
        (lane >= static_cast<real>(seen.begin - v)) & (lane < static_cast<real>(seen.end - v));
    store(row + v, inside ? load(row + v) : Vector{} + value);
  };
  if (used.begin == used.end) return;
  fill_end(used.begin);
  fill_end(used.end - kLanes);
}

// Sets the scores of keys to which query i may not attend to -inf.
void hide(const Tile& t, int64_t i, real* s) {
  const kernel::Attention& a = t.a;
  const Range seen = t.seen(i);
  constexpr real hidden = -math::infinity<real>;
  fill_ends(seen, t.used(i), s, hidden);
  if (a.padding_mask) {
    const int32_t* padding_mask = a.padding_mask + t.batch * a.keys + t.from;
    for (int64_t j = seen.begin; j < seen.end; ++j) s[j] = padding_mask[j] ? s[j] : hidden;
  }
  if (a.query_segment_ids) {
    const int32_t own = a.query_segment_ids[t.batch * a.queries + t.first + i];
    const int32_t* segment_ids = a.key_segment_ids + t.batch * a.keys + t.from;
    for (int64_t j = seen.begin; j < seen.end; ++j) s[j] = segment_ids[j] == own ? s[j] : hidden;
  }
}

void score(const Tile& t, real* scores) {
  const kernel::Attention& a = t.a;
  const int64_t stride = t.stride;
  raw_scores(t, scores);
  for (int64_t i = 0; i < t.rows; ++i) {
    real* s = scores + i * stride;
    const Range seen = t.seen(i);
    if (a.slopes) {
      const real slope = static_cast<const real*>(a.slopes)[t.head];
      const int64_t distance = t.position(i);
      for (int64_t j = seen.begin; j < seen.end; ++j) s[j] -= slope * static_cast<real>(distance - j);
    }
    if (a.bias) {
      const real* bias = static_cast<const real*>(a.bias) + t.batch * a.bias_step[0] +
                         t.head * a.bias_step[1] + (t.first + i) * a.bias_step[2] + t.from * a.bias_step[3];
      for (int64_t j = seen.begin; j < seen.end; ++j) s[j] += bias[j * a.bias_step[3]];
    }
    hide(t, i, s);
  }
}

// Sets row i to zero outside of seen(i), also where it contained NaN.
[[gnu::always_inline]] inline void clear_unseen(const Tile& t, int64_t i, real* row) {
  const Range used = t.used(i);
  const int64_t stride = t.stride;
  fill_ends(t.seen(i), used, row, 0);
  for (int64_t j = 0; j < used.begin; j += kLanes) store(row + j, Vector{});
  for (int64_t j = used.end; j < stride; j += kLanes) store(row + j, Vector{});
}

// Turns a row of scores into weights. `stats` has its largest score and sum of exponentials.
void weigh(real* s, int64_t keys, const real* stats) {
  if (stats[0] == -math::infinity<real>) return fill(s, keys, empty_weight(s, keys));
  const real top = stats[0], scale = 1 / stats[1];
  for (int64_t j = 0; j < keys; ++j) s[j] = math::exp(s[j] - top) * scale;
}

// out = dropout(weights) for row i.
void drop(const Tile& t, int64_t i, Range used, const real* weights, real* out) {
  const uint64_t threshold = dropout_threshold(t.a.dropout);
  const real keep = t.a.dropout < 1 ? static_cast<real>(1 / (1 - t.a.dropout)) : real(0);
  const uint64_t start = static_cast<uint64_t>(t.row_of_all(i) * t.a.keys + t.from);
  for (int64_t j = used.begin; j < used.end; ++j)
    out[j] =
        random_word(t.a.key, start + static_cast<uint64_t>(j)) >= threshold ? weights[j] * keep : real(0);
}

void forward_tile(const Tile& t, real* scores) {
  const kernel::Attention& a = t.a;
  const int64_t width = t.width, stride = t.stride;
  real* y = t.at(a.y);
  if (width == 0) {
    for (int64_t i = 0; i < t.rows; ++i) {
      fill(y + i * a.y.row, a.d_v, 0);
      t.stats(i)[0] = -math::infinity<real>, t.stats(i)[1] = 0;
    }
    return;
  }
  score(t, scores);
  // Each loop handles all rows, so that the reductions of different rows overlap.
  for (int64_t i = 0; i < t.rows; ++i) {
    const Range used = t.used(i);
    t.stats(i)[0] = max_of(scores + i * stride + used.begin, used.end - used.begin);
  }
  for (int64_t i = 0; i < t.rows; ++i) {
    real *stats = t.stats(i), *row = scores + i * stride;
    const Range used = t.used(i);
    const int64_t keys = used.end - used.begin;
    real* s = row + used.begin;
    if (stats[0] == -math::infinity<real>)
      fill(s, keys, empty_weight(s, keys)), stats[1] = 0;
    else
      stats[1] = exponentials(s, keys, stats[0], s);
  }
  for (int64_t i = 0; i < t.rows; ++i) {
    real* row = scores + i * stride;
    const Range used = t.used(i);
    const real sum = t.stats(i)[1], scale = sum == 0 ? 1 : 1 / sum;
    for (int64_t j = used.begin; j < used.end; ++j) row[j] *= scale;
    if (a.dropout > 0) drop(t, i, used, row, row);
    clear_unseen(t, i, row);
  }
  product({t.rows, a.d_v, width, scores, stride, false, t.keys(a.v), a.v.row, false, y, a.y.row, nullptr,
           t.band(Band::a)},
          real(1), false);
}

// p = the weights, before dropout.
void weigh_tile(const Tile& t, real* p) {
  const int64_t stride = t.stride;
  score(t, p);
  for (int64_t i = 0; i < t.rows; ++i) {
    const Range used = t.used(i);
    weigh(p + i * stride + used.begin, used.end - used.begin, t.stats(i));
    clear_unseen(t, i, p + i * stride);
  }
}

// ds, the gradient of the scores, from the weights p: dp = m (dy v^T) and ds = p (dp - sum(p dp)), with the
// dropout mask m.
void score_gradients(const Tile& t, const kernel::Heads& dy, const real* p, real* ds) {
  const kernel::Attention& a = t.a;
  const int64_t stride = t.stride;
  product({t.rows, t.width, a.d_v, t.at(dy), dy.row, false, t.keys(a.v), a.v.row, true, ds, stride, nullptr,
           t.band(Band::c)},
          real(1), false);
  double means[kMaxRows];
  for (int64_t i = 0; i < t.rows; ++i) {
    real* row = ds + i * stride;
    const Range used = t.used(i);
    fill_ends(t.seen(i), used, row, 0);
    if (a.dropout > 0) drop(t, i, used, row, row);
    means[i] = softmax_mean(p + i * stride + used.begin, row + used.begin, used.end - used.begin);
  }
  for (int64_t i = 0; i < t.rows; ++i) {
    real* row = ds + i * stride;
    const Range used = t.used(i);
    softmax_gradient(p + i * stride + used.begin, row + used.begin, means[i], row + used.begin,
                     used.end - used.begin);
    clear_unseen(t, i, row);
  }
}

// The tensor to which the gradients of the scores are added, and its strides of (batch, head, query, key).
struct Sums {
  real* data;
  const int64_t (&step)[4];

  void add(const Tile& t, const real* ds) const {
    const int64_t width = t.width, stride = t.stride;
    real* sums = data + t.batch * step[0] + t.head * step[1] + t.first * step[2] + t.from * step[3];
    for (int64_t i = 0; i < t.rows; ++i)
      for (int64_t j = 0; j < width; ++j) sums[i * step[2] + j * step[3]] += ds[i * stride + j];
  }
};

// dv = (m p)^T dy, dq = scale ds k and dk = scale ds^T q; if `add` is true, adds to dv and dk. Before dq and
// dk, ds is multiplied by the derivative of the cap, 1 - (s / cap)^2 with s the capped score.
void backward_tile(const Tile& t, const kernel::AttentionGradients& d, bool add, const Sums& sums,
                   real* scratch) {
  const kernel::Attention& a = t.a;
  const int64_t width = t.width, stride = t.stride;
  if (width == 0) {
    for (int64_t i = 0; i < t.rows; ++i) fill(t.at(d.dq) + i * d.dq.row, a.d_k, 0);
    return;
  }
  real* p = scratch;
  real* ds = p + t.rows * stride;
  weigh_tile(t, p);
  for (int64_t i = 0; i < t.rows && a.dropout > 0; ++i) {
    drop(t, i, t.used(i), p + i * stride, ds + i * stride);
    clear_unseen(t, i, ds + i * stride);
  }
  const Band band = t.band(Band::a);
  product({width, a.d_v, t.rows, a.dropout > 0 ? ds : p, stride, true, t.at(d.dy), d.dy.row, false,
           t.keys(d.dv), d.dv.row, nullptr, band},
          real(1), add);
  score_gradients(t, d.dy, p, ds);
  if (sums.data) sums.add(t, ds);
  if (a.logit_softcap > 0) {  // p is no longer needed: overwrite it with the capped scores
    const real cap = static_cast<real>(a.logit_softcap);
    raw_scores(t, p);
    for (int64_t i = 0; i < t.rows; ++i) {
      const Range seen = t.seen(i);
      for (int64_t j = i * stride + seen.begin; j < i * stride + seen.end; ++j)
        ds[j] *= 1 - (p[j] / cap) * (p[j] / cap);
    }
  }
  const real scale = static_cast<real>(a.scale);
  product({t.rows, a.d_k, width, ds, stride, false, t.keys(a.k), a.k.row, false, t.at(d.dq), d.dq.row,
           nullptr, band},
          scale,
          false);
  product({width, a.d_k, t.rows, ds, stride, true, t.at(a.q), a.q.row, false, t.keys(d.dk), d.dk.row,
           nullptr, band},
          scale,
          add);
}

// All tiles of the heads that share a key/value head run in order, because they add to the same dk and dv.
void backward_tiles(const kernel::Attention& a, const kernel::AttentionGradients& d, const Sums& sums) {
  const int64_t each = tile_rows(a), group = a.kv_heads ? a.heads / a.kv_heads : 0;
  run_tiles_with_scratch(
      a.batch * a.kv_heads, 2 * each * whole_vectors(a.keys), [&](int64_t entry, real* scratch) {
        const int64_t batch = entry / a.kv_heads, kv_head = entry % a.kv_heads, head = kv_head * group;
        // The first tile writes dk and dv of the keys that it sees; later tiles add. All other keys start at
        // zero.
        const Tile top(a, batch, head, 0, smaller(each, a.queries));
        for (int64_t j = 0; j < a.keys; ++j)
          if (top.rows == 0 || j < top.from || j >= top.from + top.width) {
            fill(rows_at(d.dk, batch, kv_head, j), a.d_k, 0);
            fill(rows_at(d.dv, batch, kv_head, j), a.d_v, 0);
          }
        for (int64_t h = head; h < head + group; ++h)
          for (int64_t first = 0; first < a.queries; first += each)
            backward_tile(Tile(a, batch, h, first, smaller(each, a.queries - first)), d,
                          h > head || first > 0, sums, scratch);
      });
}

// dbias of a bias that differs between queries. All tiles that share rows of the bias, of whatever batch
// entry or head, run in order.
void bias_by_query(const kernel::Attention& a, const kernel::AttentionGradients& d) {
  const Sums sums{static_cast<real*>(d.dbias), a.bias_step};
  const int64_t each = tile_rows(a), tiles = tiles_of(a.queries, each);
  const int64_t batches = a.bias_step[0] ? a.batch : 1, heads = a.bias_step[1] ? a.heads : 1;
  run_tiles_with_scratch(batches * heads * tiles, 2 * each * whole_vectors(a.keys),
                         [&](int64_t tile, real* scratch) {
                           const int64_t first = tile % tiles * each, entry = tile / tiles;
                           for (int64_t batch = entry / heads; batch < a.batch; batch += batches)
                             for (int64_t head = entry % heads; head < a.heads; head += heads) {
                               const Tile t(a, batch, head, first, smaller(each, a.queries - first));
                               if (t.width == 0) continue;
                               real* ds = scratch + t.rows * t.stride;
                               weigh_tile(t, scratch);
                               score_gradients(t, d.dy, scratch, ds);
                               sums.add(t, ds);
                             }
                         });
}

// dbias of a bias that is the same for all queries: adds up `sums` (batch, heads, keys) in order.
void bias_by_head(const kernel::Attention& a, const kernel::AttentionGradients& d, const real* sums) {
  for (int64_t batch = 0; batch < a.batch; ++batch)
    for (int64_t head = 0; head < a.heads; ++head, sums += a.keys) {
      real* out = static_cast<real*>(d.dbias) + batch * a.bias_step[0] + head * a.bias_step[1];
      for (int64_t j = 0; j < a.keys; ++j) out[j * a.bias_step[3]] += sums[j];
    }
}

}  // namespace

void attention(const kernel::Attention& a) {
  const int64_t each = tile_rows(a), tiles = tiles_of(a.queries, each);
  run_tiles_with_scratch(
      a.batch * a.heads * tiles, each * whole_vectors(a.keys), [&](int64_t t, real* scratch) {
        const int64_t first = t % tiles * each, entry = t / tiles;
        forward_tile(Tile(a, entry / a.heads, entry % a.heads, first, smaller(each, a.queries - first)),
                     scratch);
      });
}

void attention_backward(const kernel::Attention& a, const kernel::AttentionGradients& d) {
  if (!d.dbias || a.bias_step[2]) {
    backward_tiles(a, d, {nullptr, a.bias_step});
    if (d.dbias) bias_by_query(a, d);
    return;
  }
  const int64_t elements = a.batch * a.heads * a.keys, step[] = {a.heads * a.keys, a.keys, 0, 1};
  Scratch sums(elements);
  fill(sums.data(), elements, 0);
  backward_tiles(a, d, {sums.data(), step});
  bias_by_head(a, d, sums.data());
}

}  // namespace bonsai::cpu::BONSAI_LEVEL
