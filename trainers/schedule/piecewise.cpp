// Piecewise schedule: the rate of each point applies from its step on, or is interpolated linearly.
#include "bonsai/trainers/schedule/schedule.h"

#include <fmt/format.h>

namespace bonsai {
namespace {

struct Point {
  int64_t step = 0;
  double learning_rate = 0;
  template <class V>
  void visit(V& v) {
    v("step", step, "step of the run, counted from 0", at_least(0));
    v("learning_rate", learning_rate, "learning rate from this step on", between(0, 1000));
  }
};

struct PiecewiseConfig {
  std::vector<Point> points = {};
  bool interpolate = false;
  template <class V>
  void visit(V& v) {
    v.list("points", points, "rates after the warm-up, in the order of their steps");
    v("interpolate", interpolate, "whether the rate is interpolated linearly between points");
  }
};

class Piecewise final : public Schedule {
 public:
  Piecewise(const ScheduleContext& c, const PiecewiseConfig& keys) : Schedule(c), keys_(keys) {}

  std::string misfit() const override {
    if (keys_.points.empty())
      return "points is empty; list at least one, as in [{step: 100, learning_rate: 1e-4}]";
    int64_t last = context.warmup_steps - 1;
    for (const Point& point : keys_.points) {
      if (point.step <= last)
        return fmt::format("the point at step {} must come after the warm-up and the point before, step {}",
                           point.step, last);
      last = point.step;
    }
    return "";
  }

 protected:
  double after_warmup(int64_t step) const override {
    Point before{context.warmup_steps, context.learning_rate};
    const int64_t at = context.warmup_steps + step;
    for (const Point& next : keys_.points) {
      if (at >= next.step) {
        before = next;
        continue;
      }
      if (!keys_.interpolate) break;
      const double share =
          static_cast<double>(at - before.step) / static_cast<double>(next.step - before.step);
      return before.learning_rate + share * (next.learning_rate - before.learning_rate);
    }
    return before.learning_rate;
  }

 private:
  PiecewiseConfig keys_;
};

}  // namespace

void register_piecewise() { add_part<ScheduleKind, Piecewise, PiecewiseConfig>("piecewise"); }

}  // namespace bonsai
