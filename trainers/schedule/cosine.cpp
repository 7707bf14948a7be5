// Cosine decay from the full rate after the warm-up to the minimum at step max_steps, one step after the
// last. Loshchilov & Hutter 2017, arXiv:1608.03983
#include <numbers>

#include "bonsai/trainers/schedule/schedule.h"

namespace bonsai {
namespace {

class Cosine final : public Schedule {
 public:
  Cosine(const ScheduleContext& c, NoKeys) : Schedule(c) {}

 protected:
  double after_warmup(int64_t step) const override {
    if (step >= context.max_steps - context.warmup_steps) return context.min_learning_rate;
    const double cosine = 1 + std::cos(std::numbers::pi * static_cast<double>(step) /
                                       static_cast<double>(context.max_steps - context.warmup_steps));
    return context.min_learning_rate + 0.5 * (context.learning_rate - context.min_learning_rate) * cosine;
  }
};

}  // namespace

void register_cosine() { add_part<ScheduleKind, Cosine>("cosine"); }

}  // namespace bonsai
