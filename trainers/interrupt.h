// Signals that stop a run: the first one asks the run to save and stop, the second one ends it at once.
#pragma once

#include <csignal>
#include <iterator>

namespace bonsai {

// Thrown between units of work after a signal. It is not an Error, so that only the loop catches it.
struct Interrupted {
  int signal;
};

// Handles SIGINT, SIGTERM and SIGHUP during its lifetime. Ignored signals, as under nohup, stay ignored.
class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

  static int signal();  // the signal that was received; 0 if none was

 private:
  static constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};
  struct sigaction previous_[std::size(kSignals)] = {};
};

}  // namespace bonsai
