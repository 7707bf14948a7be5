// Softmax and log-softmax; a warp or a block computes a row. The softmax of a row of only -inf is zeros.
#include "bonsai/framework/backend/cuda/loops.h"

namespace bonsai::cuda::BONSAI_LEVEL {
namespace {

struct Min {
  __device__ int64_t operator()(int64_t a, int64_t b) const { return b < a ? b : a; }
};

// y = exp(x - top) / sum
template <int kTeam>
__global__ void weights(const real* x, int64_t rows, int64_t n, real* y) {
  const int64_t row = Team<kTeam>::row();
  if (row >= rows) return;
  x += row * n, y += row * n;
  const TopSum s = top_and_sum<kTeam>(x, n);
  const bool empty = s.sum == 0;
  const real scale = 1 / s.sum;
  for (int64_t i = Team<kTeam>::lane(); i < n; i += kTeam)
    y[i] = empty ? real(0) : math::exp(x[i] - s.top) * scale;
}

// y = x - top - log(sum)
template <int kTeam>
__global__ void log_weights(const real* x, int64_t rows, int64_t n, real* y) {
  const int64_t row = Team<kTeam>::row();
  if (row >= rows) return;
  x += row * n, y += row * n;
  const TopSum s = top_and_sum<kTeam>(x, n);
  const bool empty = s.sum == 0;
  const real log_sum = math::log(s.sum);
  for (int64_t i = Team<kTeam>::lane(); i < n; i += kTeam) y[i] = empty ? s.top : (x[i] - s.top) - log_sum;
}

// dx = y (dy - sum(y dy)). If one y is nearly 1, the difference cancels, and f32 weights y sum to 1 only up
// to rounding. Therefore f32 rows are summed in double, and sum(y dy) is divided by sum(y).
template <int kTeam>
__global__ void weights_gradient(const real* y, const real* dy, int64_t rows, int64_t n, real* dx) {
  const int64_t row = Team<kTeam>::row();
  if (row >= rows) return;
  y += row * n, dy += row * n, dx += row * n;
  double sum = 0, total = 0;
  for (int64_t i = Team<kTeam>::lane(); i < n; i += kTeam) {
    sum += static_cast<double>(y[i]) * static_cast<double>(dy[i]);
    total += static_cast<double>(y[i]);
  }
  sum = Team<kTeam>::reduce(sum, Sum{});
  total = Team<kTeam>::reduce(total, Sum{});
  const double mean = sizeof(real) < sizeof(double) && total > 0 ? sum / total : sum;
  for (int64_t i = Team<kTeam>::lane(); i < n; i += kTeam)
    dx[i] = static_cast<real>((static_cast<double>(dy[i]) - mean) * static_cast<double>(y[i]));
}

// dx = d - p sum(d). The largest p may be nearly 1; its element is computed as dx = d sum(other p) - p
// sum(other d).
template <int kTeam>
__global__ void log_weights_gradient(const real* y, const real* dy, int64_t rows, int64_t n, real* dx) {
  const int64_t row = Team<kTeam>::row();
  if (row >= rows) return;
  y += row * n, dy += row * n, dx += row * n;
  real top = -math::infinity<real>;
  for (int64_t i = Team<kTeam>::lane(); i < n; i += kTeam) top = Max{}(top, y[i]);
  top = Team<kTeam>::reduce(top, Max{});
  int64_t k = n;
  for (int64_t i = Team<kTeam>::lane(); i < n && k == n; i += kTeam)
    if (y[i] == top) k = i;
  k = Team<kTeam>::reduce(k, Min{});
  if (k == n) k = 0;  // all elements are NaN
  const bool constant = y[k] == -math::infinity<real>;
  const real d_k = dy[k], p_k = math::exp(y[k]);
  real other_p = 0, other_d = 0;
  for (int64_t i = Team<kTeam>::lane(); i < n; i += kTeam) {
    other_p += i == k ? real(0) : math::exp(y[i]);
    other_d += i == k ? real(0) : dy[i];
  }
  other_p = Team<kTeam>::reduce(other_p, Sum{});
  other_d = Team<kTeam>::reduce(other_d, Sum{});
  const real at_k = d_k * other_p - p_k * other_d, sum = other_d + d_k;
  for (int64_t i = Team<kTeam>::lane(); i < n; i += kTeam) {
    const real d = i == k ? at_k : dy[i] - math::exp(y[i]) * sum;
    dx[i] = constant ? real(0) : d;
  }
}

}  // namespace

void softmax(View x, MutView y) {
  const int64_t rows = x.shape.rows(), n = x.shape[-1];
  launch_teams(rows, n, weights<kWarp>, weights<kBlock>, x.as<real>(), rows, n, y.as<real>());
}

void softmax_backward(View y, View dy, MutView dx) {
  const int64_t rows = y.shape.rows(), n = y.shape[-1];
  launch_teams(rows, n, weights_gradient<kWarp>, weights_gradient<kBlock>, y.as<real>(), dy.as<real>(), rows,
               n, dx.as<real>());
}

void log_softmax(View x, MutView y) {
  const int64_t rows = x.shape.rows(), n = x.shape[-1];
  launch_teams(rows, n, log_weights<kWarp>, log_weights<kBlock>, x.as<real>(), rows, n, y.as<real>());
}

void log_softmax_backward(View y, View dy, MutView dx) {
  const int64_t rows = y.shape.rows(), n = y.shape[-1];
  if (n == 0) return;
  launch_teams(rows, n, log_weights_gradient<kWarp>, log_weights_gradient<kBlock>, y.as<real>(),
               dy.as<real>(), rows, n, dx.as<real>());
}

}  // namespace bonsai::cuda::BONSAI_LEVEL
