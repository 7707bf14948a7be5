// Layer norm and RMS norm. The backward pass recomputes the normalised row from x and the row's statistics.
//
// The mean is stored relative to the row's first element: differences of nearby floats are exact, so a row
// with a large mean loses no digits, and a constant row has a variance of exactly 0.
#include "bonsai/framework/backend/cpu/loops.h"
#include "bonsai/framework/backend/norm.h"

namespace bonsai::cpu::BONSAI_LEVEL {

namespace {

using LayerStats = LayerNormStats<real>;
using RmsStats = RmsNormStats<real>;

// Code for rows whose scale is not 1; not inlined, so that it does not slow down the others.
[[gnu::noinline]] real* scaled_copy(const real* x, int64_t n, real scale) {
  auto* y = static_cast<real*>(take_scratch(static_cast<size_t>(n) * sizeof(real)));
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * scale;
  return y;
}
[[gnu::noinline]] void multiply_row(real* dx, int64_t n, real scale) {
  for (int64_t i = 0; i < n; ++i) dx[i] *= scale;
}

// A row multiplied by its scale; no copy is made if the scale is 1.
class ScaledRow {
 public:
  ScaledRow(const real* x, int64_t n, real by) : data(x), n_(n) {
    // If scaling overflows, the variance is tiny compared with the elements, so all elements are equal.
    if (by == 1 || x[0] * by - x[0] * by != 0) return;
    data = scaled_copy(x, n, by);
    scale = by;
  }
  ~ScaledRow() {
    if (scale != 1) give_back_scratch(const_cast<real*>(data), static_cast<size_t>(n_) * sizeof(real));
  }
  ScaledRow(const ScaledRow&) = delete;
  ScaledRow& operator=(const ScaledRow&) = delete;

  const real* data;
  real scale = 1;

 private:
  int64_t n_;
};

// This and the functions below take a scaled row. Always inlined, so that the statistics stay in registers.
[[gnu::always_inline]] inline LayerStats layer_norm_stats(const real* in, int64_t n, real eps, real scale) {
  const real first = in[0];
  real sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += in[i] - first;
  const real mean = sum / static_cast<real>(n);
  real squares = 0;
#pragma omp simd reduction(+ : squares)
  for (int64_t i = 0; i < n; ++i) {
    const real d = (in[i] - first) - mean;
    squares += d * d;
  }
  return {mean, 1 / math::sqrt(squares / static_cast<real>(n) + eps * scale * scale), scale};
}

[[gnu::always_inline]] inline RmsStats rms_norm_stats(const real* in, int64_t n, real eps, real scale) {
  return {1 / math::sqrt(dot(in, in, n) / static_cast<real>(n) + eps * scale * scale), scale};
}

// Adds one row's terms to dw and db, and returns the sums that dx needs. The pointers are __restrict, because
// a loop that needs overlap checks at run time is not vectorised.
struct RowSums {
  real weighted, weighted_normal;
};
RowSums layer_norm_terms(const real* __restrict in, const real* __restrict d, const real* __restrict w,
                         real mean, real rstd, int64_t n, real* __restrict dw, real* __restrict db) {
  const real first = in[0];
  real sum = 0, sum_normal = 0;
#pragma omp simd reduction(+ : sum, sum_normal)
  for (int64_t i = 0; i < n; ++i) {
    const real term = d[i] * (((in[i] - first) - mean) * rstd);
    sum += w[i] * d[i];
    sum_normal += w[i] * term;
    dw[i] += term;
    db[i] += d[i];
  }
  return {sum, sum_normal};
}

// y = (in - first - mean) * rstd * w + b
void layer_norm_row(const real* __restrict in, const real* __restrict w, const real* __restrict b, real mean,
                    real rstd, int64_t n, real* __restrict y) {
  const real first = in[0];
  if (b)
    for (int64_t i = 0; i < n; ++i) y[i] = ((in[i] - first) - mean) * rstd * w[i] + b[i];
  else
    for (int64_t i = 0; i < n; ++i) y[i] = ((in[i] - first) - mean) * rstd * w[i];
}

// Adds one row's terms to dw and returns sum(w dy x).
real rms_norm_terms(const real* __restrict in, const real* __restrict d, const real* __restrict w, real r,
                    int64_t n, real* __restrict dw) {
  real sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) {
    const real term = d[i] * in[i];
    sum += w[i] * term;
    dw[i] += term * r;
  }
  return sum;
}

}  // namespace

void layer_norm(View x, View weight, View bias, double eps, MutView y, MutView stats) {
  const int64_t n = x.shape[-1];
  if (n == 0) return;
  for_rows(x.shape.rows(), n, [&](int64_t row) {
    const real* in = x.as<real>() + row * n;
    fetch_ahead(in, n);
    LayerStats s = layer_norm_stats(in, n, static_cast<real>(eps), 1);
    const ScaledRow scaled(in, n, row_scale(s.rstd));
    if (scaled.scale != 1) s = layer_norm_stats(scaled.data, n, static_cast<real>(eps), scaled.scale);
    layer_norm_row(scaled.data, weight.as<real>(), bias.as<real>(), s.mean, s.rstd, n,
                   y.as<real>() + row * n);
    stats.as<LayerStats>()[row] = s;
  });
}

// dx = scale * rstd * (w dy - mean(w dy) - x_hat * mean(w dy * x_hat))
void layer_norm_backward(View x, View weight, View stats, View dy, MutView dx, GradView dweight,
                         GradView dbias) {
  const int64_t n = x.shape[-1], rows = x.shape.rows();
  if (n == 0) return;
  const real* w = weight.as<real>();
  const int64_t size = larger(1, kGrain / larger(1, n)), tiles = tiles_of(rows, size);
  Scratch partial(2 * tiles * n);  // partial sums of dweight, then those of dbias
  run_tiles(tiles, [&](int64_t t) {
    real *dw = partial.data() + t * n, *db = dw + tiles * n;
    fill(dw, n, 0), fill(db, n, 0);
    for (int64_t row = t * size; row < smaller(rows, (t + 1) * size); ++row) {
      fetch_ahead(x.as<real>() + row * n, n);
      const LayerStats s = stats.as<LayerStats>()[row];
      const ScaledRow scaled(x.as<real>() + row * n, n, s.scale);
      const real *in = scaled.data, *d = dy.as<real>() + row * n;
      const RowSums sums = layer_norm_terms(in, d, w, s.mean, s.rstd, n, dw, db);
      if (!dx.data) continue;
      real* out = dx.as<real>() + row * n;
      const real first = in[0], mean_g = sums.weighted / static_cast<real>(n);
      const real pull = sums.weighted_normal / static_cast<real>(n);
      for (int64_t i = 0; i < n; ++i)
        out[i] = s.rstd * (w[i] * d[i] - mean_g - ((in[i] - first) - s.mean) * s.rstd * pull);
      if (s.scale != 1) multiply_row(out, n, s.scale);
    }
  });
  if (dweight.data) add_rows(partial.data(), tiles, n, dweight.as<real>(), dweight.add);
  if (dbias.data) add_rows(partial.data() + tiles * n, tiles, n, dbias.as<real>(), dbias.add);
}

void rms_norm(View x, View weight, double eps, MutView y, MutView stats) {
  const int64_t n = x.shape[-1];
  if (n == 0) return;
  const real* w = weight.as<real>();
  for_rows(x.shape.rows(), n, [&](int64_t row) {
    const real* in = x.as<real>() + row * n;
    real* out = y.as<real>() + row * n;
    fetch_ahead(in, n);
    RmsStats s = rms_norm_stats(in, n, static_cast<real>(eps), 1);
    const ScaledRow scaled(in, n, row_scale(s.r));
    if (scaled.scale != 1) s = rms_norm_stats(scaled.data, n, static_cast<real>(eps), scaled.scale);
    for (int64_t i = 0; i < n; ++i) out[i] = scaled.data[i] * s.r * w[i];
    stats.as<RmsStats>()[row] = s;
  });
}

// dx = scale * r * (w dy - x r^2 * mean(w dy * x))
void rms_norm_backward(View x, View weight, View stats, View dy, MutView dx, GradView dweight) {
  const int64_t n = x.shape[-1];
  if (n == 0) return;
  const real* w = weight.as<real>();
  sum_over_rows(x.shape.rows(), n, n, dweight.as<real>(), dweight.add, [&](int64_t row, real* dw) {
    fetch_ahead(x.as<real>() + row * n, n);
    const RmsStats s = stats.as<RmsStats>()[row];
    const ScaledRow scaled(x.as<real>() + row * n, n, s.scale);
    const real *in = scaled.data, *d = dy.as<real>() + row * n;
    const real sum = rms_norm_terms(in, d, w, s.r, n, dw);
    if (!dx.data) return;
    real* out = dx.as<real>() + row * n;
    const real pull = s.r * s.r * sum / static_cast<real>(n);
    for (int64_t i = 0; i < n; ++i) out[i] = s.r * (w[i] * d[i] - in[i] * pull);
    if (s.scale != 1) multiply_row(out, n, s.scale);
  });
}

}  // namespace bonsai::cpu::BONSAI_LEVEL
