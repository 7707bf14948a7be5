// Layer norm and RMS norm: a row is the work of a warp or of a block. Backward recomputes the normalised row from x and
// two numbers a row; gradients of weight and bias are sums over rows.
//
// The mean is kept relative to the row's first element, as on the CPU.
#include "framework/backend/cuda/columns.h"

namespace bonsai::cuda::BONSAI_LEVEL {
namespace {

template <int kTeam>
__global__ void layer_rows(const real* x, const real* weight, const real* bias, real eps, int64_t rows, int64_t n,
                           real* y, real* stats) {
  const int64_t row = Team<kTeam>::row();
  if (row >= rows) return;
  x += row * n, y += row * n;
  const real first = x[0];
  real sum = 0;
  for (int64_t i = Team<kTeam>::lane(); i < n; i += kTeam) sum += x[i] - first;
  const real mean = Team<kTeam>::reduce(sum, Sum{}) / static_cast<real>(n);
  real squares = 0;
  for (int64_t i = Team<kTeam>::lane(); i < n; i += kTeam) {
    const real d = (x[i] - first) - mean;
    squares += d * d;
  }
  const real rstd = 1 / math::sqrt(Team<kTeam>::reduce(squares, Sum{}) / static_cast<real>(n) + eps);
  for (int64_t i = Team<kTeam>::lane(); i < n; i += kTeam) {
    const real scaled = ((x[i] - first) - mean) * rstd * weight[i];
    y[i] = bias ? scaled + bias[i] : scaled;
  }
  if (Team<kTeam>::lane() != 0) return;
  stats[2 * row] = mean;
  stats[2 * row + 1] = rstd;
}

// dx = rstd * (w dy - mean(w dy) - x_hat * mean(w dy * x_hat))
template <int kTeam>
__global__ void layer_rows_gradient(const real* x, const real* weight, const real* stats, const real* dy, int64_t rows,
                                    int64_t n, real* dx) {
  const int64_t row = Team<kTeam>::row();
  if (row >= rows) return;
  x += row * n, dy += row * n, dx += row * n;
  const real first = x[0], mean = stats[2 * row], rstd = stats[2 * row + 1];
  real sum = 0, sum_normal = 0;
  for (int64_t i = Team<kTeam>::lane(); i < n; i += kTeam) {
    const real g = weight[i] * dy[i];
    sum += g;
    sum_normal += g * (((x[i] - first) - mean) * rstd);
  }
  const real mean_g = Team<kTeam>::reduce(sum, Sum{}) / static_cast<real>(n);
  const real mean_normal = Team<kTeam>::reduce(sum_normal, Sum{}) / static_cast<real>(n);
  for (int64_t i = Team<kTeam>::lane(); i < n; i += kTeam)
    dx[i] = rstd * (weight[i] * dy[i] - mean_g - ((x[i] - first) - mean) * rstd * mean_normal);
}

// dweight += dy x_hat, dbias += dy
struct LayerTerms {
  static constexpr int kSums = 2;
  const real *x, *stats, *dy;
  int64_t n;
  __device__ void operator()(int64_t row, int64_t column, real* sums) const {
    const real d = dy[row * n + column];
    sums[0] += d * (((x[row * n + column] - x[row * n]) - stats[2 * row]) * stats[2 * row + 1]);
    sums[1] += d;
  }
};

template <int kTeam>
__global__ void rms_rows(const real* x, const real* weight, real eps, int64_t rows, int64_t n, real* y, real* stats) {
  const int64_t row = Team<kTeam>::row();
  if (row >= rows) return;
  x += row * n, y += row * n;
  real squares = 0;
  for (int64_t i = Team<kTeam>::lane(); i < n; i += kTeam) squares += x[i] * x[i];
  const real r = 1 / math::sqrt(Team<kTeam>::reduce(squares, Sum{}) / static_cast<real>(n) + eps);
  for (int64_t i = Team<kTeam>::lane(); i < n; i += kTeam) y[i] = x[i] * r * weight[i];
  if (Team<kTeam>::lane() == 0) stats[row] = r;
}

// dx = r * (w dy - x r^2 * mean(w dy * x))
template <int kTeam>
__global__ void rms_rows_gradient(const real* x, const real* weight, const real* stats, const real* dy, int64_t rows,
                                  int64_t n, real* dx) {
  const int64_t row = Team<kTeam>::row();
  if (row >= rows) return;
  x += row * n, dy += row * n, dx += row * n;
  real sum = 0;
  for (int64_t i = Team<kTeam>::lane(); i < n; i += kTeam) sum += weight[i] * dy[i] * x[i];
  const real r = stats[row];
  const real pull = r * r * Team<kTeam>::reduce(sum, Sum{}) / static_cast<real>(n);
  for (int64_t i = Team<kTeam>::lane(); i < n; i += kTeam) dx[i] = r * (weight[i] * dy[i] - x[i] * pull);
}

// dweight += dy x r
struct RmsTerms {
  static constexpr int kSums = 1;
  const real *x, *stats, *dy;
  int64_t n;
  __device__ void operator()(int64_t row, int64_t column, real* sums) const {
    sums[0] += dy[row * n + column] * x[row * n + column] * stats[row];
  }
};

}  // namespace

void layer_norm(View x, View weight, View bias, double eps, MutView y, MutView stats) {
  const int64_t rows = x.shape.rows(), n = x.shape[-1];
  if (n == 0) return;
  launch_teams(rows, n, layer_rows<kWarp>, layer_rows<kBlock>, x.as<real>(), weight.as<real>(), bias.as<real>(),
               static_cast<real>(eps), rows, n, y.as<real>(), stats.as<real>());
}

void layer_norm_backward(View x, View weight, View stats, View dy, MutView dx, GradView dweight, GradView dbias) {
  const int64_t rows = x.shape.rows(), n = x.shape[-1];
  if (n == 0) return;
  if (dweight.data || dbias.data)  // first: dx may lie where dy does
    sum_columns(LayerTerms{x.as<real>(), stats.as<real>(), dy.as<real>(), n}, 1, rows, n,
                {{dweight.as<real>(), dbias.as<real>()}, {dweight.add, dbias.add}});
  if (dx.data)
    launch_teams(rows, n, layer_rows_gradient<kWarp>, layer_rows_gradient<kBlock>, x.as<real>(), weight.as<real>(),
                 stats.as<real>(), dy.as<real>(), rows, n, dx.as<real>());
}

void rms_norm(View x, View weight, double eps, MutView y, MutView stats) {
  const int64_t rows = x.shape.rows(), n = x.shape[-1];
  if (n == 0) return;
  launch_teams(rows, n, rms_rows<kWarp>, rms_rows<kBlock>, x.as<real>(), weight.as<real>(), static_cast<real>(eps),
               rows, n, y.as<real>(), stats.as<real>());
}

void rms_norm_backward(View x, View weight, View stats, View dy, MutView dx, GradView dweight) {
  const int64_t rows = x.shape.rows(), n = x.shape[-1];
  if (n == 0) return;
  if (dweight.data)
    sum_columns(RmsTerms{x.as<real>(), stats.as<real>(), dy.as<real>(), n}, 1, rows, n,
                {{dweight.as<real>(), nullptr}, {dweight.add, false}});
  if (dx.data)
    launch_teams(rows, n, rms_rows_gradient<kWarp>, rms_rows_gradient<kBlock>, x.as<real>(), weight.as<real>(),
                 stats.as<real>(), dy.as<real>(), rows, n, dx.as<real>());
}

}  // namespace bonsai::cuda::BONSAI_LEVEL
