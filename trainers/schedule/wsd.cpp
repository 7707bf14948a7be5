// Warm-up, stable, decay: the full rate, which decays to the minimum over the last decay_steps.
// Hu et al. 2024, arXiv:2404.06395; the shape 1 - sqrt is from Hägele et al. 2024, arXiv:2405.18392
#include "bonsai/trainers/schedule/schedule.h"

#include <fmt/format.h>

namespace bonsai {
namespace {

struct WarmupStableDecayConfig {
  int64_t decay_steps = -1;
  std::string shape = "linear";
  template <class V>
  void visit(V& v) {
    v("decay_steps", decay_steps, "number of steps of the decay; -1 chooses trainer.max_steps / 5",
      at_least(-1));
    v("shape", shape, "shape of the decay: linear, or 1 - sqrt of the fraction of its steps",
      OneOf{{"linear", "one_minus_sqrt"}});
  }
};

class WarmupStableDecay final : public Schedule {
 public:
  WarmupStableDecay(const ScheduleContext& c, const WarmupStableDecayConfig& keys)
      : Schedule(c),
        shape_(keys.shape),
        decay_steps_(keys.decay_steps < 0 ? c.max_steps / 5 : keys.decay_steps) {}

  std::string misfit() const override {
    const int64_t most = context.max_steps - context.warmup_steps;
    return decay_steps_ <= most
               ? ""
               : fmt::format("decay_steps {} is more than the {} steps after the warm-up; lower it",
                             decay_steps_, most);
  }

 protected:
  double after_warmup(int64_t step) const override {
    const int64_t done = step - (context.max_steps - context.warmup_steps - decay_steps_);
    if (done <= 0) return context.learning_rate;
    const double share = std::min(1.0, static_cast<double>(done) / static_cast<double>(decay_steps_));
    return between_rates(1 - (shape_ == "linear" ? share : std::sqrt(share)));
  }

 private:
  std::string shape_;
  int64_t decay_steps_;
};

}  // namespace

void register_wsd() { add_part<ScheduleKind, WarmupStableDecay, WarmupStableDecayConfig>("wsd"); }

}  // namespace bonsai
