// Matrix products, cut into tiles by shape alone.
//
// Where this level's own tiles are fast, rows of C are cut and share a packed B, or columns where there are far more of
// them; a weight's gradient is cut into blocks of C, and its depth with them. Otherwise a tile is one single-threaded
// OpenBLAS call: about 96 rows, or columns where n > m; where that gives too few tiles for the processors of a small
// machine, k is cut as well. Parts of a depth are added in order. Up to four rows read B where it lies. The bits depend
// on where the tiles lie, which is a function of the shape.
#include "bonsai/framework/backend/cpu/gemm.h"

#include "bonsai/framework/backend/cpu/product.h"

namespace bonsai::cpu::BONSAI_LEVEL {
namespace {

constexpr int64_t kTile = 96, kDepth = 192, kEnoughTiles = 8, kFewRows = 4;

Product rows_of(Product p, int64_t begin, int64_t end) {
  p.m = end - begin;
  p.a += p.a_transposed ? begin : begin * p.lda;
  p.c += begin * p.ldc;
  return p;
}

Product columns_of(Product p, int64_t begin, int64_t end) {
  p.n = end - begin;
  p.b += p.b_transposed ? begin * p.ldb : begin;
  p.c += begin;
  if (p.bias) p.bias += begin;
  return p;
}

Product depth_of(Product p, int64_t begin, int64_t end) {
  p.k = end - begin;
  p.a += p.a_transposed ? begin * p.lda : begin;
  p.b += p.b_transposed ? begin : begin * p.ldb;
  return p;
}

// The parts of [0, n): about `about` each, multiples of `step` that differ by one at most, the larger ones spread among
// the others, so that each half of them is half of all.
struct Parts {
  int64_t n, step, steps, count;
  Parts(int64_t n, int64_t about, int64_t step = 1)
      : n(n), step(step), steps(tiles_of(n, step)), count(larger(1, (n + about / 2) / about)) {
    count = larger(1, tiles_of(steps, tiles_of(steps, count)));
  }
  int64_t begin(int64_t i) const { return smaller(n, i * steps / count * step); }
  int64_t end(int64_t i) const { return begin(i + 1); }
};

Product block_of(const Product& p, const Parts& rows, const Parts& columns, int64_t i) {
  const int64_t row = i / columns.count, column = i % columns.count;
  return columns_of(rows_of(p, rows.begin(row), rows.end(row)), columns.begin(column), columns.end(column));
}

// C in blocks, and k cut as well. The first part of the depth goes into C, the others into scratch; they are added in
// order.
void deep_product(const Product& p, const Parts& rows, const Parts& columns, const Parts& depth, real alpha, bool add) {
  const int64_t area = p.m * p.n, blocks = rows.count * columns.count;
  Scratch others((depth.count - 1) * area);
  run_tiles(blocks * depth.count, [&](int64_t t) {
    const int64_t d = t / blocks;
    Product part = depth_of(p, depth.begin(d), depth.end(d));
    if (d > 0) part.c = others.data() + (d - 1) * area, part.ldc = p.n, part.bias = nullptr;
    product(block_of(part, rows, columns, t % blocks), alpha, add && d == 0);
  });
  if (depth.count > 1)
    for_rows(p.m, p.n * depth.count, [&](int64_t i) {
      real* __restrict out = p.c + i * p.ldc;
      const real* __restrict in = others.data() + i * p.n;
      for (int64_t d = 1; d < depth.count; ++d, in += area)
        for (int64_t j = 0; j < p.n; ++j) out[j] += in[j];
    });
}

// By our own tiles, whose edges are those of register tiles.
void own_tiles(const Product& p, real alpha, bool add) {
  constexpr int64_t kSmall = 65536, kTileProducts = 1 << 20;
  if (p.m * p.n * p.k <= kSmall) return own_product(p, alpha, add);
  // A weight's gradient: a small C of a long depth. A block of C reads each operand once, and packs its own.
  if (p.a_transposed) {
    const Parts rows(p.m, 256, kTileRows), columns(p.n, kStrips, kTileColumns);
    const int64_t wanted = tiles_of(kEnoughTiles, rows.count * columns.count);
    return deep_product(p, rows, columns, Parts(p.k, larger(kDepth, p.k / wanted), 8), alpha, add);
  }
  if (p.n > 2 * p.m) {
    const Parts columns(p.n, 128, kTileColumns);
    return run_tiles(columns.count, [&](int64_t t) {
      own_product(columns_of(p, columns.begin(t), columns.end(t)), alpha, add);
    });
  }
  // Rows share what is packed of B: all of them a part that stays in the outer cache, and then the next.
  constexpr int64_t kKept = 65536;
  const Parts rows(p.m, 48, kTileRows);
  const int64_t wanted = larger(tiles_of(kEnoughTiles, rows.count), rows.end(0) * p.n * p.k / kTileProducts);
  const Parts parts(p.n, larger(kTileColumns, p.n / larger(1, wanted)), kTileColumns);
  const int64_t kept = larger(1, kKept / larger(1, p.k * parts.end(0)));
  Scratch packed(packed_elements(p.k, p.n));
  pack(p, packed.data());
  run_tiles(rows.count * parts.count, [&](int64_t t) {
    const int64_t first = t / (rows.count * kept) * kept, count = smaller(kept, parts.count - first);
    const int64_t in_part = t - first * rows.count, row = in_part / count, column = first + in_part % count;
    own_product(rows_of(p, rows.begin(row), rows.end(row)), alpha, add, packed.data(), parts.begin(column),
                parts.end(column));
  });
}

// Each row a matrix times a vector.
void few_rows(const Product& p, real alpha, bool add) {
  const Parts columns(p.n, larger(64, kGrain * 4 / larger(1, p.k)), kLanes);
  run_tiles(columns.count, [&](int64_t t) {
    few_rows_product(columns_of(p, columns.begin(t), columns.end(t)), alpha, add);
  });
}

Product product_at(const kernel::Gemm& g, const int64_t* index) {
  Product p{g.m,
            g.n,
            g.k,
            static_cast<const real*>(g.a.data),
            g.a.ld,
            g.a.transposed,
            static_cast<const real*>(g.b.data),
            g.b.ld,
            g.b.transposed,
            static_cast<real*>(g.c),
            g.ldc,
            static_cast<const real*>(g.bias)};
  for (int axis = 0; axis < kernel::Gemm::kBatchAxes; ++axis) {
    p.a += index[axis] * g.a.step[axis];
    p.b += index[axis] * g.b.step[axis];
    p.c += index[axis] * g.c_step[axis];
  }
  return p;
}

}  // namespace

void gemm(const kernel::Gemm& g) {
  if (g.m == 0 || g.n == 0) return;
  // Batch axes whose products are added into one result are walked inside a tile, in order.
  int64_t kept = 1, added = 1;
  for (int axis = 0; axis < kernel::Gemm::kBatchAxes; ++axis) (g.c_step[axis] == 0 ? added : kept) *= g.batch[axis];
  if (kept == 0) return;
  const real alpha = static_cast<real>(g.alpha);
  const auto entry = [&](int64_t k, int64_t s) {
    int64_t index[kernel::Gemm::kBatchAxes];
    for (int axis = kernel::Gemm::kBatchAxes - 1; axis >= 0; --axis) {
      int64_t& rest = g.c_step[axis] == 0 ? s : k;
      index[axis] = g.batch[axis] ? rest % g.batch[axis] : 0;
      rest /= larger(1, g.batch[axis]);
    }
    return product_at(g, index);
  };

  const Parts rows(g.m, g.m >= g.n ? kTile : g.m), columns(g.n, g.m >= g.n ? g.n : kTile);
  const int64_t tiles = rows.count * columns.count;
  if (kept == 1 && added == 1) {
    const Product p = entry(0, 0);
    if (g.m <= kFewRows && !g.a.transposed) return few_rows(p, alpha, g.add);
    if (prefers_own()) return own_tiles(p, alpha, g.add);
    if (tiles < kEnoughTiles && g.k > kDepth * 3 / 2)
      return deep_product(p, rows, columns, Parts(g.k, kDepth), alpha, g.add);
  }
  run_tiles(kept * tiles, [&](int64_t t) {
    if (added == 0) {
      const Product p = block_of(entry(t / tiles, 0), rows, columns, t % tiles);
      for (int64_t i = 0; i < p.m && !g.add; ++i) fill(p.c + i * p.ldc, p.n, 0);
    }
    for (int64_t s = 0; s < added; ++s) {
      Product p = block_of(entry(t / tiles, s), rows, columns, t % tiles);
      if (s > 0) p.bias = nullptr;
      product(p, alpha, g.add || s > 0);
    }
  });
}

}  // namespace bonsai::cpu::BONSAI_LEVEL
