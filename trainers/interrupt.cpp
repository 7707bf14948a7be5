#include "bonsai/trainers/interrupt.h"

#include <unistd.h>

namespace bonsai {
namespace {

volatile std::sig_atomic_t interrupted_by = 0;

void handle(int signal) {
  if (interrupted_by) _exit(128 + signal);
  interrupted_by = signal;
}

}  // namespace

InterruptScope::InterruptScope() {
  interrupted_by = 0;
  for (size_t i = 0; i < std::size(kSignals); ++i) {
    struct sigaction action {};
    action.sa_handler = handle;
    sigaction(kSignals[i], nullptr, &previous_[i]);
    if (previous_[i].sa_handler != SIG_IGN) sigaction(kSignals[i], &action, nullptr);
  }
}

InterruptScope::~InterruptScope() {
  for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &previous_[i], nullptr);
}

int InterruptScope::signal() { return interrupted_by; }

}  // namespace bonsai
