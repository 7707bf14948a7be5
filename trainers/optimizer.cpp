#include "bonsai/trainers/optimizer.h"

#include <cmath>

#include "bonsai/framework/autograd/dispatch.h"

namespace bonsai {

Optimizer::Optimizer(ParameterArena& arena, const OptimizerConfig& config)
    : arena_(arena),
      config_(config),
      m_(zeros_like(arena.values())),
      v_(zeros_like(arena.values())),
      state_(empty({sizeof(kernel::StepState) / sizeof(int32_t)}, DType::i32, arena.values().device())) {
  const kernel::StepState start;
  pool(state_.device()).memory().copy(on_device(), &start, sizeof start);
}

void Optimizer::add_loss(const Tensor& sum, bool first) {
  kernels(sum).add_loss(view(sum), first, on_device());
}

kernel::StepState Optimizer::step(int64_t step, double learning_rate, int64_t tokens) {
  const auto correction = [&](double beta) { return 1 - std::pow(beta, static_cast<double>(step + 1)); };
  Tensor& values = arena_.values();
  Tensor& gradients = arena_.gradients();
  const KernelTable& k = kernels(values);
  k.begin_update(tokens > 0 ? 1 / static_cast<double>(tokens) : 0, learning_rate, correction(config_.beta_1),
                 correction(config_.beta_2), on_device());
  k.gradient_norm(view(gradients), config_.clip_norm, on_device());
  k.adamw(view(gradients),
          {config_.beta_1, config_.beta_2, config_.eps, config_.weight_decay, arena_.decayed()}, on_device(),
          mut(values), mut(m_), mut(v_));
  return state();
}

kernel::StepState Optimizer::state() const {
  kernel::StepState host;
  pool(state_.device()).memory().copy(&host, state_.data(), sizeof host);
  return host;
}

}  // namespace bonsai
