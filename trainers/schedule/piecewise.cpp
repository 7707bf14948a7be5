// A list of rates: each holds from its step on, or is reached there in a straight line.
#include "bonsai/trainers/schedule/schedule.h"

#include <fmt/format.h>

namespace bonsai {
namespace {

struct Point {
  int64_t step = 0;
  double learning_rate = 0;
  template <class V>
  void visit(V& v) {
    v("step", step, "of the run, from 0", at_least(0));
    v("learning_rate", learning_rate, "the rate from there on", between(0, 1000));
  }
};

struct PiecewiseConfig {
  std::vector<Point> points = {};
  bool interpolate = false;
  template <class V>
  void visit(V& v) {
    v.list("points", points, "rates after that of the warm-up, by rising step");
    v("interpolate", interpolate, "whether the rate goes to that of the next point in a straight line");
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
