// A step's state, the gradient norm, and the elementwise optimizers.
#include "bonsai/framework/backend/cpu/loops.h"
#include "bonsai/framework/backend/updates.h"

namespace bonsai::cpu::BONSAI_LEVEL {

void add_loss(View loss, bool first, kernel::StepState* state) {
  state->loss = (first ? 0 : state->loss) + static_cast<double>(loss.as<real>()[0]);
}

void begin_update(const kernel::StepNumbers& numbers, kernel::StepState* state) {
  static_cast<kernel::StepNumbers&>(*state) = numbers;
}

// Squares are summed in double, tile by tile: f32 overflows at 1e19 and a norm is compared across runs.
void gradient_norm(View gradients, double clip_norm, kernel::StepState* state) {
  const int64_t n = gradients.shape.elements(), tiles = tiles_of(n, kGrain);
  const real* g = gradients.as<real>();
  const int64_t words = static_cast<int64_t>(sizeof(double) / sizeof(real));
  Scratch scratch(larger(1, tiles) * words);
  double* partial = reinterpret_cast<double*>(scratch.data());
  run_tiles(tiles, [&](int64_t t) {
    constexpr int64_t kLanes = 16;  // sums side by side, so that none waits for the one before
    double sums[kLanes] = {}, sum = 0;
    const int64_t end = smaller(n, (t + 1) * kGrain);
    int64_t i = t * kGrain;
    for (; i + kLanes <= end; i += kLanes)
      for (int64_t j = 0; j < kLanes; ++j)
        sums[j] += static_cast<double>(g[i + j]) * static_cast<double>(g[i + j]);
    for (; i < end; ++i) sum += static_cast<double>(g[i]) * static_cast<double>(g[i]);
    for (const double s : sums) sum += s;
    partial[t] = sum;
  });
  double total = 0;
  for (int64_t t = 0; t < tiles; ++t) total += partial[t];
  const double norm = math::sqrt(total) * state->scale;
  state->gradient_norm = norm;
  state->finite = norm - norm == 0 && state->loss - state->loss == 0;
  state->factor = state->scale;
  if (clip_norm > 0 && clip_norm / (norm + 1e-6) < 1) state->factor *= clip_norm / (norm + 1e-6);
}

namespace {

// All of an element is read before any of it is written: the arrays often lie whole pages apart, where a load
// waits for a store to another array that ends in the same twelve bits.
template <class Rule, class Options>
void update(View gradients, const Options& options, double rate_scale, const kernel::StepState* state,
            MutView values, const kernel::Slots& slots) {
  static_assert(Rule::kSlots == 1 || Rule::kSlots == 2);
  if (!state->finite) return;
  kernel::StepNumbers step = *state;
  step.learning_rate *= rate_scale;
  const real factor = static_cast<real>(state->factor);
  const real* g = gradients.as<real>();
  real* p = values.as<real>();
  real* first = slots.slot[0].as<real>();
  real* second = slots.slot[1].as<real>();
  for_ranges(values.shape.elements(), kGrain, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      real slot[2] = {first[i], Rule::kSlots == 2 ? second[i] : 0};
      const real value = Rule::apply(p[i], g[i] * factor, slot, step, options);
      first[i] = slot[0];
      if constexpr (Rule::kSlots == 2) second[i] = slot[1];
      p[i] = value;
    }
  });
}

}  // namespace

#define UPDATE(name, Rule)                                                                                  \
  void name(View gradients, const kernel::Rule& options, double rate_scale, const kernel::StepState* state, \
            MutView values, const kernel::Slots& slots) {                                                   \
    update<Rule>(gradients, options, rate_scale, state, values, slots);                                     \
  }
BONSAI_UPDATES(UPDATE)
#undef UPDATE

}  // namespace bonsai::cpu::BONSAI_LEVEL
