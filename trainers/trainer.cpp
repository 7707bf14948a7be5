#include "bonsai/framework/backend/backend.h"
#include "bonsai/trainers/trainer.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "bonsai/framework/autograd/tape.h"

namespace bonsai {
namespace {

// Opens the device and returns the settings of the model's root.
Build build_of(const TrainerConfig& c, const DeviceConfig& d) {
  open_device(d.device());
  if (d.device().type == Device::cuda) use_tf32(d.tf32);
  return {.dtype = c.type(), .device = d.device(), .seed = static_cast<uint64_t>(c.seed)};
}

}  // namespace

Trainer::Trainer(const RunConfig& config)
    : config_(config),
      root_(build_of(config.trainer, config.device)),
      model_(config.model.make(&root_)),
      arena_(model_->parameters()),
      optimizer_(arena_, config.optimizer),
      schedule_(config.schedule.make(config.trainer.max_steps)) {
  check(!config.data || model_->reads_source() == config.data->has_source(), "train",
        "the task {} has {} source, but the model {} reads {}; choose another of them", config.task,
        config.data->has_source() ? "a" : "no", config.model.kind.name(),
        model_->reads_source() ? "one" : "none");
}

int64_t Trainer::parameter_count() const {
  int64_t count = 0;
  for (const Parameter* p : arena_.parameters()) count += p->value.elements();
  return count;
}

StepResult Trainer::accumulate_gradients(int64_t step, const Poll& poll) {
  const TrainerConfig& c = config_.trainer;
  const auto seed = static_cast<uint64_t>(c.seed);
  arena_.zero_gradients();
  StepResult result;
  for (int64_t micro = 0; micro < c.gradient_accumulation; ++micro) {
    poll();
    mark_part("batch");
    const Batch batch = config_.data->batch({.seed = seed, .step = step, .micro_batch = micro}, c.batch_size);
    Context context{
        .training = true,
        .random = {
            .seed = seed, .step = static_cast<uint32_t>(step), .micro_batch = static_cast<uint16_t>(micro)}};
    mark_part("forward");
    Tape tape;
    const LossSum loss = loss_of(*model_, batch, context);
    mark_part("backward");
    tape.backward(loss.sum);
    mark_part("loss");
    optimizer_.add_loss(loss.sum, micro == 0);
    result.tokens += loss.tokens;
  }
  return result;
}

StepResult Trainer::step(int64_t step, const Poll& poll) {
  NonfiniteTrace trace;
  std::optional<ScopedWatcher> watch;
  if (config_.trainer.trace_nonfinite) watch.emplace(trace);
  StepResult result = accumulate_gradients(step, poll);
  watch.reset();
  const auto mean = [&](double sum) {
    return result.tokens > 0 ? sum / static_cast<double>(result.tokens) : 0;
  };
  if (trace.found()) fail_not_finite(step, mean(optimizer_.state().loss), trace);
  result.learning_rate = (*schedule_)(step);
  mark_part("update");
  const kernel::StepState state = optimizer_.step(step, result.learning_rate, result.tokens);
  result.loss = mean(state.loss);
  if (!state.finite) fail_not_finite(step, result.loss, trace);
  result.gradient_norm = state.gradient_norm;
  return result;
}

void Trainer::fail_not_finite(int64_t step, double loss, NonfiniteTrace& trace) {
  std::string where = "every gradient is finite";
  for (Parameter* p : arena_.parameters()) {
    const auto values = p->grad.values();
    const bool bad = std::any_of(values.begin(), values.end(), [](double v) { return !std::isfinite(v); });
    if (!bad) continue;
    where = "the gradient of " + p->path + " is the first that is not finite";
    break;
  }
  if (!trace.found()) {
    const ScopedWatcher watch(trace);
    accumulate_gradients(step, kNoPoll);
  }
  fail("train", "at step {} the loss is {} and {}; {}; no weight was changed", step + 1,
       std::isnan(loss) ? NAN : loss, where,
       trace.found() ? "first of all " + trace.text() : "no op made a value that is not finite");
}

}  // namespace bonsai
