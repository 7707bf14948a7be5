// A step's state, the gradient norm, and the elementwise optimizers. The numbers of a step are read from the
// state, not given at launch.
#include "bonsai/framework/backend/cuda/loops.h"
#include "bonsai/framework/backend/updates.h"

namespace bonsai::cuda::BONSAI_LEVEL {
namespace {

constexpr int64_t kPart = 8192;  // elements whose squares are one partial sum

__global__ void add_to_loss(const real* loss, bool first, kernel::StepState* state) {
  state->loss = (first ? 0 : state->loss) + static_cast<double>(*loss);
}

__global__ void set_numbers(kernel::StepNumbers numbers, kernel::StepState* state) {
  static_cast<kernel::StepNumbers&>(*state) = numbers;
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

template <class Rule, class Options>
__global__ void update(const real* g, Options options, double rate_scale, const kernel::StepState* state,
                       real* p, real* first, real* second, int64_t n) {
  const int64_t i = element();
  if (i >= n || !state->finite) return;
  kernel::StepNumbers step = *state;
  step.learning_rate *= rate_scale;
  real slot[2] = {first[i], Rule::kSlots == 2 ? second[i] : real(0)};
  p[i] = Rule::apply(p[i], g[i] * static_cast<real>(state->factor), slot, step, options);
  first[i] = slot[0];
  if (Rule::kSlots == 2) second[i] = slot[1];
}

}  // namespace

void add_loss(View loss, bool first, kernel::StepState* state) {
  gpu::launch({1, 1, 0, stream()}, add_to_loss, loss.as<real>(), first, state);
}

void begin_update(const kernel::StepNumbers& numbers, kernel::StepState* state) {
  gpu::launch({1, 1, 0, stream()}, set_numbers, numbers, state);
}

void gradient_norm(View gradients, double clip_norm, kernel::StepState* state) {
  const int64_t n = gradients.shape.elements(), parts = gpu::ceil_div(n, kPart);
  Scratch partial(parts * static_cast<int64_t>(sizeof(double)));
  launch_rows(parts, sum_squares, gradients.as<real>(), n, partial.as<double>());
  gpu::launch({1, kBlock, 0, stream()}, decide, partial.as<double>(), parts, clip_norm, state);
}

#define UPDATE(name, Rule)                                                                                  \
  void name(View gradients, const kernel::Rule& options, double rate_scale, const kernel::StepState* state, \
            MutView values, const kernel::Slots& slots) {                                                   \
    const int64_t n = values.shape.elements();                                                              \
    launch_elements(n, update<Rule, kernel::Rule>, gradients.as<real>(), options, rate_scale, state,        \
                    values.as<real>(), slots.slot[0].as<real>(), slots.slot[1].as<real>(), n);              \
  }
BONSAI_UPDATES(UPDATE)
#undef UPDATE

}  // namespace bonsai::cuda::BONSAI_LEVEL
