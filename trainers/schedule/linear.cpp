// Linear decay from the full rate after the warm-up to the minimum at max_steps, one step after the last.
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
