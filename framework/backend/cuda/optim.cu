// A step's state; the gradient norm and AdamW, each one pass over all parameters. Their numbers are read from
// the state, not given at launch.
#include "bonsai/framework/backend/cuda/loops.h"

namespace bonsai::cuda::BONSAI_LEVEL {
namespace {

constexpr int64_t kPart = 8192;  // elements whose squares are one partial sum

__global__ void add_to_loss(const real* loss, bool first, kernel::StepState* state) {
  state->loss = (first ? 0 : state->loss) + static_cast<double>(*loss);
}

__global__ void set_update(double scale, double learning_rate, double correction_1, double correction_2,
                           kernel::StepState* state) {
  state->scale = scale;
  state->learning_rate = learning_rate;
  state->correction_1 = correction_1;
  state->correction_2 = correction_2;
}

__global__ void sum_squares(const real* g, int64_t n, double* partial) {
  const int64_t begin = blockIdx.x * kPart, end = begin + kPart < n ? begin + kPart : n;
  double sum = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x)
    sum += static_cast<double>(g[i]) * static_cast<double>(g[i]);
  sum = block_reduce(sum, Sum{});
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void decide(const double* partial, int64_t parts, double clip_norm, kernel::StepState* state) {
  double total = 0;
  for (int64_t i = threadIdx.x; i < parts; i += blockDim.x) total += partial[i];
  total = block_reduce(total, Sum{});
  if (threadIdx.x != 0) return;
  const double norm = math::sqrt(total) * state->scale;
  state->gradient_norm = norm;
  state->finite = norm - norm == 0 && state->loss - state->loss == 0;
  state->factor = state->scale;
  if (clip_norm > 0 && clip_norm / (norm + 1e-6) < 1) state->factor *= clip_norm / (norm + 1e-6);
}

__global__ void update(const real* g, kernel::AdamW o, const kernel::StepState* state, real* p, real* first,
                       real* second, int64_t n) {
  const int64_t i = element();
  if (i >= n || !state->finite) return;
  const real b1 = static_cast<real>(o.beta_1), b2 = static_cast<real>(o.beta_2);
  const real c1 = static_cast<real>(1 - o.beta_1), c2 = static_cast<real>(1 - o.beta_2);
  const real rate = static_cast<real>(state->learning_rate / state->correction_1);
  const real root = static_cast<real>(1 / math::sqrt(state->correction_2));
  const real x = g[i] * static_cast<real>(state->factor);
  const real m = b1 * first[i] + c1 * x, v = b2 * second[i] + c2 * x * x;
  first[i] = m;
  second[i] = v;
  const real kept =
      i < o.decayed ? p[i] * static_cast<real>(1 - state->learning_rate * o.weight_decay) : p[i];
  p[i] = kept - rate * m / (math::sqrt(v) * root + static_cast<real>(o.eps));
}

}  // namespace

void add_loss(View loss, bool first, kernel::StepState* state) {
  gpu::launch({1, 1, 0, stream()}, add_to_loss, loss.as<real>(), first, state);
}

void begin_update(double scale, double learning_rate, double correction_1, double correction_2,
                  kernel::StepState* state) {
  gpu::launch({1, 1, 0, stream()}, set_update, scale, learning_rate, correction_1, correction_2, state);
}

void gradient_norm(View gradients, double clip_norm, kernel::StepState* state) {
  const int64_t n = gradients.shape.elements(), parts = gpu::ceil_div(n, kPart);
  Scratch partial(parts * static_cast<int64_t>(sizeof(double)));
  launch_rows(parts, sum_squares, gradients.as<real>(), n, partial.as<double>());
  gpu::launch({1, kBlock, 0, stream()}, decide, partial.as<double>(), parts, clip_norm, state);
}

void adamw(View gradients, const kernel::AdamW& o, const kernel::StepState* state, MutView values, MutView m,
           MutView v) {
  const int64_t n = values.shape.elements();
  launch_elements(n, update, gradients.as<real>(), o, state, values.as<real>(), m.as<real>(), v.as<real>(),
                  n);
}

}  // namespace bonsai::cuda::BONSAI_LEVEL
