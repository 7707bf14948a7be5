// Progress of a run on standard error. On a terminal, one line is rewritten; otherwise, a line is printed
// every few seconds.
#pragma once

#include <chrono>
#include <string>

#include "bonsai/trainers/trainer.h"

namespace bonsai {

// Writes to standard error. Failures are ignored, so that the run goes on.
void say(const std::string& text);

// The line of a training that says how far it is and how fast it goes.
class ProgressLine {
 public:
  ProgressLine(int64_t max_steps, int64_t first_step, double floor, bool quiet);
  ~ProgressLine();

  // Shows that so many steps are done, and how the last one went.
  void step(int64_t done, const StepResult& result);
  void note(const std::string& text);  // prints a permanent line, unless quiet
  void warn(const std::string& text);  // prints a permanent line, even if quiet
  double tokens_per_second() const;    // mean since the start of this process

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
