// The learning rate of each step: a warm-up, and what a schedule makes of the steps after it. A schedule of
// your own is one file: a struct of its keys and a class, as in wsd.cpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include "bonsai/framework/config/registry.h"

namespace bonsai {

void register_trainer_parts();  // written by CMake

// What every schedule knows.
struct ScheduleContext {
  double learning_rate = 1e-3;  // at the end of the warm-up
  double min_learning_rate = 0;
  int64_t warmup_steps = 0;
  int64_t max_steps = 1;
};

class Schedule {
 public:
  explicit Schedule(const ScheduleContext& c) : context(c) {}
  virtual ~Schedule() = default;

  // The rate of a step, from 0 to max_steps - 1.
  double operator()(int64_t step) const {
    return step < context.warmup_steps ? warm_up(step) : after_warmup(step - context.warmup_steps);
  }
  // Which keys contradict each other, as a sentence; empty if none do.
  virtual std::string misfit() const { return ""; }

 protected:
  // Step s of the warm-up has (s + 1) / warmup_steps of the rate.
  virtual double warm_up(int64_t step) const {
    return context.learning_rate * (static_cast<double>(step) + 1) /
           static_cast<double>(context.warmup_steps);
  }
  // Steps count from the end of the warm-up here.
  virtual double after_warmup(int64_t step) const = 0;

  // The share of the steps after the warm-up that lie before this one: 0 at the first, 1 from max_steps on.
  double progress(int64_t step) const {
    const auto all = static_cast<double>(context.max_steps - context.warmup_steps);
    return static_cast<double>(step) >= all ? 1 : static_cast<double>(step) / all;
  }
  // From the full rate at a share of 1 to the minimum at 0.
  double between_rates(double share) const {
    return context.min_learning_rate + share * (context.learning_rate - context.min_learning_rate);
  }

  ScheduleContext context;
};

struct ScheduleKind {
  static constexpr const char *name = "schedule", *standard = "cosine";
  using Make = std::unique_ptr<Schedule>(const ScheduleContext& context);
  static void register_all() { register_trainer_parts(); }
};

struct ScheduleConfig {
  Choice<ScheduleKind> kind = {};
  double learning_rate = 1e-3;
  double min_learning_rate = NAN;  // a tenth of learning_rate
  int64_t warmup_steps = -1;       // a tenth of max_steps, at most 100

  // A key that is left out follows those that it must fit.
  void choose_defaults(int64_t max_steps) {
    if (std::isnan(min_learning_rate)) min_learning_rate = learning_rate / 10;
    if (warmup_steps < 0) warmup_steps = std::min<int64_t>(100, max_steps / 10);
  }
  std::unique_ptr<Schedule> make(int64_t max_steps) const {
    ScheduleConfig s = *this;
    s.choose_defaults(max_steps);
    return s.kind.make(ScheduleContext{s.learning_rate, s.min_learning_rate, s.warmup_steps, max_steps});
  }

  struct Keys {
    ScheduleConfig& schedule;
    int64_t max_steps;
    template <class V>
    void visit(V& v) {
      ScheduleConfig& s = schedule;
      v.part(s.kind, "what follows the warm-up, up to trainer.max_steps");
      v.renamed("decay", "kind");
      v("learning_rate", s.learning_rate, "reached at the end of the warm-up", between(0, 1000));
      s.choose_defaults(max_steps);
      v("min_learning_rate", s.min_learning_rate,
        "where a falling rate ends, after the last step; a tenth of learning_rate if left out",
        between(0, 1000));
      v("warmup_steps", s.warmup_steps,
        "steps of the linear warm-up; a tenth of trainer.max_steps, at most 100, if left out", at_least(0));
    }
  };
};

// The rate of a step of a run with max_steps.
inline double learning_rate(const ScheduleConfig& schedule, int64_t step, int64_t max_steps) {
  return (*schedule.make(max_steps))(step);
}

}  // namespace bonsai
