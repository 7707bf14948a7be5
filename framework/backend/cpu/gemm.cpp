// Matrix products, split into tiles by shape alone.
//
// If this level prefers its own micro-kernel, a tile is some rows of C, and all tiles share a packed B; if n
// > 2 m, a tile is some columns of C. The gradient of a weight is split into blocks of C and along k
// (split-K). Otherwise a tile is one single-threaded OpenBLAS call of about 96 rows, or of columns if n > m;
// if that gives fewer than kEnoughTiles tiles, the product is also split along k. The results of a split
// along k are added in order. Products of up to four rows read B in place. A result's bits depend on the
// tiles, which depend only on the shape.
#include "bonsai/framework/backend/cpu/gemm.h"

#include "bonsai/framework/backend/cpu/product.h"

namespace bonsai::cpu::BONSAI_LEVEL {
namespace {

constexpr int64_t kTile = 96, kDepth = 192, kEnoughTiles = 8, kGemvRows = 4;

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

// Splits [0, n) into parts near `target`, all multiples of `step` except the last. Sizes differ by at most
// one step; larger and smaller parts are interleaved to balance threads.
struct Parts {
  int64_t n, step, steps, count;
  Parts(int64_t n, int64_t target, int64_t step = 1)
      : n(n), step(step), steps(tiles_of(n, step)), count(larger(1, (n + target / 2) / target)) {
    count = larger(1, tiles_of(steps, tiles_of(steps, count)));
  }
  int64_t begin(int64_t i) const { return smaller(n, i * steps / count * step); }
  int64_t end(int64_t i) const { return begin(i + 1); }
};

Product block_of(const Product& p, const Parts& rows, const Parts& columns, int64_t i) {
  const int64_t row = i / columns.count, column = i % columns.count;
  return columns_of(rows_of(p, rows.begin(row), rows.end(row)), columns.begin(column), columns.end(column));
}

// Splits C into blocks and k into parts. The first part of k is computed in C, the others in scratch memory;
// then they are added in order.
void split_k_product(const Product& p, const Parts& rows, const Parts& columns, const Parts& depth,
                     real alpha, bool add) {
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

// A product by Bonsai's micro-kernel; tile sizes are multiples of MR or NR.
void own_tiles(const Product& p, real alpha, bool add) {
  constexpr int64_t kSmall = 65536, kTileProducts = 1 << 20;
  if (p.m * p.n * p.k <= kSmall) return own_product(p, alpha, add);
  // The gradient of a weight: C is small and k is large. Each block of C packs its own panels of B.
  if (p.a_transposed) {
    const Parts rows(p.m, 256, kMR), columns(p.n, kNC, kNR);
    const int64_t wanted = tiles_of(kEnoughTiles, rows.count * columns.count);
    return split_k_product(p, rows, columns, Parts(p.k, larger(kDepth, p.k / wanted), 8), alpha, add);
  }
  if (p.n > 2 * p.m) {
    const Parts columns(p.n, 128, kNR);
    return run_tiles(columns.count, [&](int64_t t) {
      own_product(columns_of(p, columns.begin(t), columns.end(t)), alpha, add);
    });
  }
  // All tiles of rows use one part of the packed B, which stays in the outer cache, before the next part.
  constexpr int64_t kKept = 65536;
  const Parts rows(p.m, 48, kMR);
  const int64_t wanted = larger(tiles_of(kEnoughTiles, rows.count), rows.end(0) * p.n * p.k / kTileProducts);
  const Parts parts(p.n, larger(kNR, p.n / larger(1, wanted)), kNR);
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

// Few rows: one matrix-vector product per row.
void gemv_tiles(const Product& p, real alpha, bool add) {
  const Parts columns(p.n, larger(64, kGrain * 4 / larger(1, p.k)), kLanes);
  run_tiles(columns.count, [&](int64_t t) {
    gemv(columns_of(p, columns.begin(t), columns.end(t)), alpha, add);
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
  // A tile loops, in order, over the batch axes whose products are summed.
  int64_t kept = 1, added = 1;
  for (int axis = 0; axis < kernel::Gemm::kBatchAxes; ++axis)
    (g.c_step[axis] == 0 ? added : kept) *= g.batch[axis];
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
    if (g.m <= kGemvRows && !g.a.transposed) return gemv_tiles(p, alpha, g.add);
    if (prefers_own()) return own_tiles(p, alpha, g.add);
    if (tiles < kEnoughTiles && g.k > kDepth * 3 / 2)
      return split_k_product(p, rows, columns, Parts(g.k, kDepth), alpha, g.add);
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
