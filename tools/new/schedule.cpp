// my_part: a learning-rate schedule. `kind: my_part` in a config's schedule section selects it.
//
// This one is halved every half_life steps. Replace after_warmup() with a rule of your own; the warm-up is
// there already.
#include "bonsai/trainers/schedule/schedule.h"

namespace bonsai {
namespace {

struct MyPartConfig {
  int64_t half_life = 1000;
  template <class V>
  void visit(V& v) {
    v("half_life", half_life, "steps after which the rate is halved", at_least(1));
  }
};

class MyPart final : public Schedule {
 public:
  MyPart(const ScheduleContext& c, const MyPartConfig& keys) : Schedule(c), keys_(keys) {}

 protected:
  // Steps count from the end of the warm-up here. progress(step) is 0 at the first and 1 after the last.
  double after_warmup(int64_t step) const override {
    const double halvings = static_cast<double>(step) / static_cast<double>(keys_.half_life);
    return std::max(context.min_learning_rate, context.learning_rate * std::pow(0.5, halvings));
  }

 private:
  MyPartConfig keys_;
};

}  // namespace

void register_my_part() { add_part<ScheduleKind, MyPart, MyPartConfig>("my_part"); }

}  // namespace bonsai
