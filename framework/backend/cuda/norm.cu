// Layer norm and RMS norm; a warp or a block computes a row. The backward pass recomputes the normalised row
// from x and the row's statistics; the gradients of weight and bias are column sums.
//
// The mean is stored relative to the row's first element, as on the CPU.
#include "bonsai/framework/backend/cuda/columns.h"
#include "bonsai/framework/backend/norm.h"

namespace bonsai::cuda::BONSAI_LEVEL {
namespace {

using LayerStats = LayerNormStats<real>;
using RmsStats = RmsNormStats<real>;

// Gives the same result in every thread of the team, so that either all threads read the row again or none
// does.
template <int kTeam>
__device__ LayerStats layer_stats(const real* x, int64_t n, real eps) {
  for (real scale = 1;;) {
    const real first = x[0] * scale;
    real sum = 0;
    for (int64_t i = Team<kTeam>::lane(); i < n; i += kTeam) sum += x[i] * scale - first;
    const real mean = Team<kTeam>::reduce(sum, Sum{}) / static_cast<real>(n);
    real squares = 0;
    for (int64_t i = Team<kTeam>::lane(); i < n; i += kTeam) {
      const real d = (x[i] * scale - first) - mean;
      squares += d * d;
    }
    const real variance = Team<kTeam>::reduce(squares, Sum{}) / static_cast<real>(n) + eps * scale * scale;
    const real rstd = 1 / math::sqrt(variance), next = row_scale(rstd);
    // If scaling overflows, the variance is tiny compared with the elements, so all elements are equal.
    const bool fits = x[0] * next - x[0] * next == 0;
    if (scale != 1 || next == 1 || !fits) return {mean, rstd, scale};
    scale = next;
  }
}

template <int kTeam>
__global__ void layer_rows(const real* x, const real* weight, const real* bias, real eps, int64_t rows,
                           int64_t n, real* y, LayerStats* stats) {
  const int64_t row = Team<kTeam>::row();
  if (row >= rows) return;
  x += row * n, y += row * n;
  const LayerStats s = layer_stats<kTeam>(x, n, eps);
  const real first = x[0] * s.scale;
  for (int64_t i = Team<kTeam>::lane(); i < n; i += kTeam) {
    const real scaled = ((x[i] * s.scale - first) - s.mean) * s.rstd * weight[i];
    y[i] = bias ? scaled + bias[i] : scaled;
  }
  if (Team<kTeam>::lane() == 0) stats[row] = s;
}

// dx = scale * rstd * (w dy - mean(w dy) - x_hat * mean(w dy * x_hat))
template <int kTeam>
__global__ void layer_rows_gradient(const real* x, const real* weight, const LayerStats* stats,
                                    const real* dy, int64_t rows, int64_t n, real* dx) {
  const int64_t row = Team<kTeam>::row();
  if (row >= rows) return;
  x += row * n, dy += row * n, dx += row * n;
  const LayerStats s = stats[row];
  const real first = x[0] * s.scale;
  real sum = 0, sum_normal = 0;
  for (int64_t i = Team<kTeam>::lane(); i < n; i += kTeam) {
    const real g = weight[i] * dy[i];
    sum += g;
    sum_normal += g * (((x[i] * s.scale - first) - s.mean) * s.rstd);
  }
  const real mean_g = Team<kTeam>::reduce(sum, Sum{}) / static_cast<real>(n);
  const real mean_normal = Team<kTeam>::reduce(sum_normal, Sum{}) / static_cast<real>(n);
  for (int64_t i = Team<kTeam>::lane(); i < n; i += kTeam)
    dx[i] = s.rstd *
            (weight[i] * dy[i] - mean_g - ((x[i] * s.scale - first) - s.mean) * s.rstd * mean_normal) *
            s.scale;
}

// dweight += dy x_hat, dbias += dy
struct LayerTerms {
  static constexpr int kSums = 2;
  const real *x, *dy;
  const LayerStats* stats;
  int64_t n;
  __device__ void operator()(int64_t row, int64_t column, real* sums) const {
    const real d = dy[row * n + column];
    const LayerStats s = stats[row];
    sums[0] += d * (((x[row * n + column] * s.scale - x[row * n] * s.scale) - s.mean) * s.rstd);
    sums[1] += d;
  }
};

template <int kTeam>
__device__ RmsStats rms_stats(const real* x, int64_t n, real eps) {
  for (real scale = 1;;) {
    real squares = 0;
    for (int64_t i = Team<kTeam>::lane(); i < n; i += kTeam) squares += (x[i] * scale) * (x[i] * scale);
    const real square = Team<kTeam>::reduce(squares, Sum{}) / static_cast<real>(n) + eps * scale * scale;
    const real r = 1 / math::sqrt(square), next = row_scale(r);
    if (scale != 1 || next == 1) return {r, scale};
    scale = next;
  }
}

template <int kTeam>
__global__ void rms_rows(const real* x, const real* weight, real eps, int64_t rows, int64_t n, real* y,
                         RmsStats* stats) {
  const int64_t row = Team<kTeam>::row();
  if (row >= rows) return;
  x += row * n, y += row * n;
  const RmsStats s = rms_stats<kTeam>(x, n, eps);
  for (int64_t i = Team<kTeam>::lane(); i < n; i += kTeam) y[i] = x[i] * s.scale * s.r * weight[i];
  if (Team<kTeam>::lane() == 0) stats[row] = s;
}

// dx = scale * r * (w dy - x r^2 * mean(w dy * x)), with x scaled
template <int kTeam>
__global__ void rms_rows_gradient(const real* x, const real* weight, const RmsStats* stats, const real* dy,
                                  int64_t rows, int64_t n, real* dx) {
  const int64_t row = Team<kTeam>::row();
  if (row >= rows) return;
  x += row * n, dy += row * n, dx += row * n;
  const RmsStats s = stats[row];
  real sum = 0;
  for (int64_t i = Team<kTeam>::lane(); i < n; i += kTeam) sum += weight[i] * dy[i] * (x[i] * s.scale);
  const real pull = s.r * s.r * Team<kTeam>::reduce(sum, Sum{}) / static_cast<real>(n);
  for (int64_t i = Team<kTeam>::lane(); i < n; i += kTeam)
    dx[i] = s.r * (weight[i] * dy[i] - x[i] * s.scale * pull) * s.scale;
}

// dweight += dy x r
struct RmsTerms {
  static constexpr int kSums = 1;
  const real *x, *dy;
  const RmsStats* stats;
  int64_t n;
  __device__ void operator()(int64_t row, int64_t column, real* sums) const {
    const RmsStats s = stats[row];
    sums[0] += dy[row * n + column] * (x[row * n + column] * s.scale) * s.r;
  }
};

}  // namespace

void layer_norm(View x, View weight, View bias, double eps, MutView y, MutView stats) {
  const int64_t rows = x.shape.rows(), n = x.shape[-1];
  if (n == 0) return;
  launch_teams(rows, n, layer_rows<kWarp>, layer_rows<kBlock>, x.as<real>(), weight.as<real>(),
               bias.as<real>(), static_cast<real>(eps), rows, n, y.as<real>(), stats.as<LayerStats>());
}

void layer_norm_backward(View x, View weight, View stats, View dy, MutView dx, GradView dweight,
                         GradView dbias) {
  const int64_t rows = x.shape.rows(), n = x.shape[-1];
  if (n == 0) return;
  if (dweight.data || dbias.data)  // before dx, which may overwrite dy
    sum_columns(LayerTerms{x.as<real>(), dy.as<real>(), stats.as<LayerStats>(), n}, 1, rows, n,
                {{dweight.as<real>(), dbias.as<real>()}, {dweight.add, dbias.add}});
  if (dx.data)
    launch_teams(rows, n, layer_rows_gradient<kWarp>, layer_rows_gradient<kBlock>, x.as<real>(),
                 weight.as<real>(), stats.as<LayerStats>(), dy.as<real>(), rows, n, dx.as<real>());
}

void rms_norm(View x, View weight, double eps, MutView y, MutView stats) {
  const int64_t rows = x.shape.rows(), n = x.shape[-1];
  if (n == 0) return;
  launch_teams(rows, n, rms_rows<kWarp>, rms_rows<kBlock>, x.as<real>(), weight.as<real>(),
               static_cast<real>(eps), rows, n, y.as<real>(), stats.as<RmsStats>());
}

void rms_norm_backward(View x, View weight, View stats, View dy, MutView dx, GradView dweight) {
  const int64_t rows = x.shape.rows(), n = x.shape[-1];
  if (n == 0) return;
  if (dweight.data)
    sum_columns(RmsTerms{x.as<real>(), dy.as<real>(), stats.as<RmsStats>(), n}, 1, rows, n,
                {{dweight.as<real>(), nullptr}, {dweight.add, false}});
  if (dx.data)
    launch_teams(rows, n, rms_rows_gradient<kWarp>, rms_rows_gradient<kBlock>, x.as<real>(),
                 weight.as<real>(), stats.as<RmsStats>(), dy.as<real>(), rows, n, dx.as<real>());
}

}  // namespace bonsai::cuda::BONSAI_LEVEL
