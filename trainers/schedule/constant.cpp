// A constant learning rate after the warm-up.
#include "bonsai/trainers/schedule/schedule.h"

namespace bonsai {
namespace {

class Constant final : public Schedule {
 public:
  Constant(const ScheduleContext& c, NoKeys) : Schedule(c) {}

 protected:
  double after_warmup(int64_t) const override { return context.learning_rate; }
};

}  // namespace

void register_constant() { add_part<ScheduleKind, Constant>("constant"); }

}  // namespace bonsai
