// Inverse square-root decay: learning_rate * sqrt(w / (step + 1)) with w = max(1, warmup_steps), but at least
// the minimum.
// Vaswani et al. 2017, arXiv:1706.03762
#include "bonsai/trainers/schedule/schedule.h"

namespace bonsai {
namespace {

class InverseSqrt final : public Schedule {
 public:
  InverseSqrt(const ScheduleContext& c, NoKeys) : Schedule(c) {}

 protected:
  double after_warmup(int64_t step) const override {
    const auto warmup = static_cast<double>(std::max<int64_t>(1, context.warmup_steps));
    const auto number = static_cast<double>(context.warmup_steps + step + 1);
    return std::max(context.min_learning_rate, context.learning_rate * std::sqrt(warmup / number));
  }
};

}  // namespace

void register_inverse_sqrt() { add_part<ScheduleKind, InverseSqrt>("inverse_sqrt"); }

}  // namespace bonsai
