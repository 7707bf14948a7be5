#include "bonsai/trainers/config.h"

#include <fmt/format.h>

#include "bonsai/layers/model/transformer.h"

namespace bonsai {
namespace {

std::string misfit(const ScheduleConfig& s, const TrainerConfig& trainer, double weight_decay) {
  if (s.min_learning_rate > s.learning_rate)
    return fmt::format("schedule.min_learning_rate {} is above schedule.learning_rate {}; "
                       "lower it or leave it out",
                       s.min_learning_rate, s.learning_rate);
  if (trainer.max_steps > 0 && s.warmup_steps > trainer.max_steps)
    return fmt::format("schedule.warmup_steps {} is more than trainer.max_steps {}; lower it or leave it out",
                       s.warmup_steps, trainer.max_steps);
  if (const std::string why = s.make(trainer.max_steps)->misfit(); trainer.max_steps > 0 && !why.empty())
    return "schedule: " + why;
  if (s.learning_rate * weight_decay > 1)  // decay multiplies weights by 1 - learning_rate * weight_decay
    return fmt::format(
        "schedule.learning_rate {} times optimizer.weight_decay {} is more than 1, so a step would "
        "reverse the sign of every weight; lower one of them",
        s.learning_rate, weight_decay);
  return "";
}

std::string misfit(const TrainerConfig& t) {
  if (t.max_steps > 0 && t.early_stop > 0 && (t.eval_interval == 0 || t.eval_interval >= t.max_steps))
    return fmt::format(
        "trainer.early_stop {} needs evaluations during the run, but trainer.eval_interval is {}{}",
        t.early_stop, t.eval_interval,
        t.eval_interval == 0 ? "" : fmt::format(" and trainer.max_steps {}", t.max_steps));
  if (const int64_t window = t.halving_window(); t.max_steps > 0 && t.mark_halving && t.log_interval > window)
    return fmt::format("trainer.mark_halving compares losses {} steps apart, but trainer.log_interval is {}; "
                       "lower it to at most {}",
                       window, t.log_interval, window);
  return "";
}

}  // namespace

std::string misfit(const RunConfig& c) {
  if (const std::string why = c.model.kind.misfit_text(); !why.empty()) return "model: " + why;
  if (const auto* model = c.model.kind.find<TransformerKeys>();
      c.data && model && c.data->has_source() != (model->n_encoder_layers > 0))
    return fmt::format(
        "model.n_encoder_layers is {}, but the task {} has {}", model->n_encoder_layers, c.task,
        c.data->has_source() ? "a source, which needs an encoder" : "no source for an encoder");
  if (const std::string why = misfit(c.trainer); !why.empty()) return why;
  return misfit(c.schedule, c.trainer, c.optimizer.kind.make()->weight_decay());
}

}  // namespace bonsai
