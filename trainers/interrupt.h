// The signals that stop a run: the first asks it to save and stop, the second stops it at once.
#pragma once

#include <csignal>
#include <iterator>

namespace bonsai {

// Thrown between units of work once a signal came. No Error: only the loop catches it.
struct Interrupted {
  int signal;
};

// Handles SIGINT, SIGTERM and SIGHUP while it lives. A signal that is ignored, as under nohup, stays ignored.
class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

  static int signal();  // the one that came; 0 if none did

 private:
  static constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};
  struct sigaction previous_[std::size(kSignals)] = {};
};

}  // namespace bonsai
