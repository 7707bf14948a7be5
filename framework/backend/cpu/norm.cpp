// Layer norm and RMS norm. Backward recomputes the normalised row from x and two numbers a row.
//
// The mean is kept relative to the row's first element: differences of nearby floats are exact, so a
// row with a large mean loses no digits and a constant row has a variance of exactly 0.
#include "framework/backend/cpu/loops.h"

namespace bonsai::cpu::BONSAI_LEVEL {

namespace {

// One row's terms of the weight's gradient are added to dw, of the bias's to db; returned are the sums that dx needs.
// The pointers are told apart here: a loop that must ask at run time whether they overlap is not vectorised.
struct RowSums {
  real weighted, weighted_normal;
};
RowSums layer_norm_terms(const real* __restrict in, const real* __restrict d, const real* __restrict w, real mean,
                         real rstd, int64_t n, real* __restrict dw, real* __restrict db) {
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

// sum(w dy x)
real rms_norm_terms(const real* __restrict in, const real* __restrict d, const real* __restrict w, real r, int64_t n,
                    real* __restrict dw) {
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
  const real* w = weight.as<real>();
  const real* b = bias.as<real>();
  for_rows(x.shape.rows(), n, [&](int64_t row) {
    const real* in = x.as<real>() + row * n;
    real* out = y.as<real>() + row * n;
    fetch_ahead(in, n);
    const real first = n ? in[0] : real(0);
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
    const real rstd = 1 / math::sqrt(squares / static_cast<real>(n) + static_cast<real>(eps));
    if (n > 0) layer_norm_row(in, w, b, mean, rstd, n, out);
    stats.as<real>()[2 * row] = mean;
    stats.as<real>()[2 * row + 1] = rstd;
  });
}

// dx = rstd * (w dy - mean(w dy) - x_hat * mean(w dy * x_hat))
void layer_norm_backward(View x, View weight, View stats, View dy, MutView dx, GradView dweight,
                         GradView dbias) {
  const int64_t n = x.shape[-1], rows = x.shape.rows();
  if (n == 0) return;
  const real* w = weight.as<real>();
  const int64_t size = larger(1, kGrain / larger(1, n)), tiles = tiles_of(rows, size);
  Scratch partial(2 * tiles * n);  // of dweight and dbias
  run_tiles(tiles, [&](int64_t t) {
    real *dw = partial.data() + t * n, *db = dw + tiles * n;
    fill(dw, n, 0), fill(db, n, 0);
    for (int64_t row = t * size; row < smaller(rows, (t + 1) * size); ++row) {
      const real *in = x.as<real>() + row * n, *d = dy.as<real>() + row * n;
      fetch_ahead(in, n);
      const real first = in[0], mean = stats.as<real>()[2 * row], rstd = stats.as<real>()[2 * row + 1];
      const RowSums sums = layer_norm_terms(in, d, w, mean, rstd, n, dw, db);
      if (!dx.data) continue;
      real* out = dx.as<real>() + row * n;
      const real mean_g = sums.weighted / static_cast<real>(n), pull = sums.weighted_normal / static_cast<real>(n);
      for (int64_t i = 0; i < n; ++i)
        out[i] = rstd * (w[i] * d[i] - mean_g - ((in[i] - first) - mean) * rstd * pull);
    }
  });
  if (dweight.data) add_rows(partial.data(), tiles, n, dweight.as<real>(), dweight.add);
  if (dbias.data) add_rows(partial.data() + tiles * n, tiles, n, dbias.as<real>(), dbias.add);
}

void rms_norm(View x, View weight, double eps, MutView y, MutView stats) {
  const int64_t n = x.shape[-1];
  const real* w = weight.as<real>();
  for_rows(x.shape.rows(), n, [&](int64_t row) {
    const real* in = x.as<real>() + row * n;
    real* out = y.as<real>() + row * n;
    fetch_ahead(in, n);
    const real r = 1 / math::sqrt(dot(in, in, n) / static_cast<real>(n) + static_cast<real>(eps));
    for (int64_t i = 0; i < n; ++i) out[i] = in[i] * r * w[i];
    stats.as<real>()[row] = r;
  });
}

// dx = r * (w dy - x r^2 * mean(w dy * x))
void rms_norm_backward(View x, View weight, View stats, View dy, MutView dx, GradView dweight) {
  const int64_t n = x.shape[-1];
  const real* w = weight.as<real>();
  sum_over_rows(x.shape.rows(), n, n, dweight.as<real>(), dweight.add, [&](int64_t row, real* dw) {
    const real *in = x.as<real>() + row * n, *d = dy.as<real>() + row * n;
    fetch_ahead(in, n);
    const real r = stats.as<real>()[row];
    const real sum = rms_norm_terms(in, d, w, r, n, dw);
    if (!dx.data) return;
    real* out = dx.as<real>() + row * n;
    const real pull = r * r * sum / static_cast<real>(n);
    for (int64_t i = 0; i < n; ++i) out[i] = r * (w[i] * d[i] - in[i] * pull);
  });
}

}  // namespace bonsai::cpu::BONSAI_LEVEL
