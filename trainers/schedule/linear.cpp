// A straight line from the full rate to the minimum, which it would reach at step max_steps.
#include "bonsai/trainers/schedule/schedule.h"

namespace bonsai {
namespace {

class LinearDecay final : public Schedule {
 public:
  LinearDecay(const ScheduleContext& c, NoKeys) : Schedule(c) {}

 protected:
  double after_warmup(int64_t step) const override { return between_rates(1 - progress(step)); }
};

}  // namespace

void register_linear() { add_part<ScheduleKind, LinearDecay>("linear"); }

}  // namespace bonsai
