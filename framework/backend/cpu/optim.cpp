// A step's state; the gradient norm and AdamW, each one pass over all parameters.
#include "bonsai/framework/backend/cpu/loops.h"

namespace bonsai::cpu::BONSAI_LEVEL {

void add_loss(View loss, bool first, kernel::StepState* state) {
  state->loss = (first ? 0 : state->loss) + static_cast<double>(loss.as<real>()[0]);
}

void begin_update(double scale, double learning_rate, double correction_1, double correction_2,
                  kernel::StepState* state) {
  state->scale = scale;
  state->learning_rate = learning_rate;
  state->correction_1 = correction_1;
  state->correction_2 = correction_2;
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

// Loshchilov & Hutter 2019, arXiv:1711.05101: the decay is apart from the gradient; eps is added after
// the bias correction.
void adamw(View gradients, const kernel::AdamW& o, const kernel::StepState* state, MutView values, MutView m,
           MutView v) {
  if (!state->finite) return;
  const real b1 = static_cast<real>(o.beta_1), b2 = static_cast<real>(o.beta_2);
  const real c1 = static_cast<real>(1 - o.beta_1), c2 = static_cast<real>(1 - o.beta_2);
  const real rate = static_cast<real>(state->learning_rate / state->correction_1);
  const real root = static_cast<real>(1 / math::sqrt(state->correction_2));
  const real eps = static_cast<real>(o.eps), factor = static_cast<real>(state->factor);
  const real shrink = static_cast<real>(1 - state->learning_rate * o.weight_decay);
  const real* g = gradients.as<real>();
  real* p = values.as<real>();
  real* first = m.as<real>();
  real* second = v.as<real>();
  // All of an element is read before any of it is written: the arrays often lie whole pages apart, where a
  // load waits for a store to another array that ends in the same twelve bits.
  const auto update = [=](int64_t begin, int64_t end, real keep) {
    for (int64_t i = begin; i < end; ++i) {
      const real x = g[i] * factor, old = p[i];
      const real mean = b1 * first[i] + c1 * x, square = b2 * second[i] + c2 * x * x;
      const real value = old * keep - rate * mean / (math::sqrt(square) * root + eps);
      first[i] = mean, second[i] = square, p[i] = value;
    }
  };
  for_ranges(values.shape.elements(), kGrain, [&](int64_t begin, int64_t end) {
    const int64_t decay_end = larger(begin, smaller(end, o.decayed));
    update(begin, decay_end, shrink);
    update(decay_end, end, 1);
  });
}

}  // namespace bonsai::cpu::BONSAI_LEVEL
