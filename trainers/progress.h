// What a person watching a run sees, on standard error: one line that is rewritten on a terminal, a line
// now and then elsewhere.
#pragma once

#include <chrono>
#include <string>

#include "bonsai/trainers/trainer.h"

namespace bonsai {

// To standard error, of which nothing depends: what cannot be written there is lost, and the run goes on.
void say(const std::string& text);

// The line of a training that says how far it is and how fast it goes.
class ProgressLine {
 public:
  ProgressLine(int64_t max_steps, int64_t first_step, double floor, bool quiet);
  ~ProgressLine();

  // Shows that so many steps are done, and how the last one went.
  void step(int64_t done, const StepResult& result);
  void note(const std::string& text);  // a line that stays
  void warn(const std::string& text);  // one that is not for the quiet to miss
  double tokens_per_second() const;    // since the run began

 private:
  using Clock = std::chrono::steady_clock;
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  void clear();

  int64_t max_steps_, first_step_, tokens_ = 0;
  double floor_;
  bool quiet_, terminal_, drawn_ = false;
  Clock::time_point start_ = Clock::now(), last_ = start_ - std::chrono::hours(1);
};

}  // namespace bonsai
