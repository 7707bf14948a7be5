// One cycle: the rate rises by half a cosine from learning_rate / start_divisor to learning_rate over
// warmup_steps (often 30 % of all steps), and falls by half a cosine to the minimum, as in PyTorch.
//                                                                    Smith & Topin 2019, arXiv:1708.07120
#include <numbers>

#include "bonsai/trainers/schedule/schedule.h"

namespace bonsai {
namespace {

struct OneCycleConfig {
  double start_divisor = 25;
  template <class V>
  void visit(V& v) {
    v("start_divisor", start_divisor, "the initial rate is learning_rate divided by this", between(1, 1e9));
  }
};

class OneCycle final : public Schedule {
 public:
  OneCycle(const ScheduleContext& c, const OneCycleConfig& keys)
      : Schedule(c), start_(c.learning_rate / keys.start_divisor) {}

 protected:
  static double half_cosine(double from, double to, double share) {
    return to + (from - to) / 2 * (1 + std::cos(std::numbers::pi * share));
  }
  double warm_up(int64_t step) const override {
    return half_cosine(start_, context.learning_rate,
                       static_cast<double>(step) / static_cast<double>(context.warmup_steps));
  }
  double after_warmup(int64_t step) const override {
    return half_cosine(context.learning_rate, context.min_learning_rate, progress(step));
  }

 private:
  double start_;
};

}  // namespace

void register_one_cycle() { add_part<ScheduleKind, OneCycle, OneCycleConfig>("one_cycle"); }

}  // namespace bonsai
