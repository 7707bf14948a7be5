#include "trainers/optimizer.h"

#include <cmath>

#include "framework/autograd/dispatch.h"

namespace bonsai {

Optimizer::Optimizer(ParameterArena& arena, const OptimizerConfig& config)
    : arena_(arena),
      config_(config),
      m_(zeros_like(arena.values())),
      v_(zeros_like(arena.values())),
      state_(empty({sizeof(StepState) / sizeof(int32_t)}, DType::i32, arena.values().device())) {}

StepState Optimizer::step(int64_t step, double learning_rate, int64_t tokens) {
  StepState host;
  host.scale = tokens > 0 ? 1 / static_cast<double>(tokens) : 0;
  host.learning_rate = learning_rate;
  host.correction_1 = 1 - std::pow(config_.beta_1, static_cast<double>(step + 1));
  host.correction_2 = 1 - std::pow(config_.beta_2, static_cast<double>(step + 1));
  const DeviceMemory& memory = pool(state_.device()).memory();
  auto* state = static_cast<StepState*>(state_.mutable_data());
  memory.copy(state, &host, sizeof host);

  Tensor& values = arena_.values();
  Tensor& gradients = arena_.gradients();
  kernels(values).gradient_norm(view(gradients), config_.clip_norm, state);
  kernels(values).adamw(view(gradients),
                        {config_.beta_1, config_.beta_2, config_.eps, config_.weight_decay, arena_.decayed()}, state,
                        mut(values), mut(m_), mut(v_));
  memory.copy(&host, state, sizeof host);
  return host;
}

}  // namespace bonsai
