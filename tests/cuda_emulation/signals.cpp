// Turns a fault of a kernel into a report that names the kernel, the thread, the line and the address; the
// launch is abandoned and the program continues. Other faults are passed to the previous signal handler.
#include <pthread.h>
#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <memory>

#include "bonsai/tests/cuda_emulation/emulation.h"
#include "bonsai/tests/cuda_emulation/sanitizer.h"
#include "bonsai/tests/cuda_emulation/scheduler.h"

namespace emulation {
namespace {

constexpr std::array<int, 3> kSignals{SIGSEGV, SIGBUS, SIGFPE};
constexpr size_t kSignalStack = 64 * 1024;

struct Fault {
  uintptr_t address = 0;
  const void* code = nullptr;
  int signal = 0;
  bool impossible = false;  // a non-canonical address
};
Fault fault;  // the most recent fault

int users = 0;
pthread_t launcher{};  // the thread that launched the running kernel
std::array<struct sigaction, kSignals.size()> before{};

// The alternate signal stack of each thread that launches: the fault may be an overflow of the fiber's stack.
class SignalStack {
 public:
  SignalStack() {
    stack_t old{};
    if (sigaltstack(nullptr, &old) != 0 || !(old.ss_flags & SS_DISABLE)) return;
    bytes_ = std::make_unique<char[]>(kSignalStack);
    stack_t mine{};
    mine.ss_sp = bytes_.get();
    mine.ss_size = kSignalStack;
    sigaltstack(&mine, nullptr);
  }
  ~SignalStack() {
    if (!bytes_) return;
    stack_t none{};
    none.ss_flags = SS_DISABLE;
    sigaltstack(&none, nullptr);
  }
  SignalStack(const SignalStack&) = delete;
  SignalStack& operator=(const SignalStack&) = delete;

 private:
  std::unique_ptr<char[]> bytes_;
};

void pass_on(int signal, siginfo_t* info, void* context) {
  const auto at = static_cast<size_t>(std::find(kSignals.begin(), kSignals.end(), signal) - kSignals.begin());
  const struct sigaction& old = before[at];
  if (old.sa_flags & SA_SIGINFO)
    old.sa_sigaction(signal, info, context);
  else if (old.sa_handler != SIG_DFL && old.sa_handler != SIG_IGN)
    old.sa_handler(signal);
  else
    sigaction(signal, &old, nullptr);  // the fault recurs and reaches that handler
}

void report_fault() {
  const Fault f = fault;
  const std::string line = line_of(f.code);
  const std::string what = f.signal == SIGFPE ? "integer division by zero"
                           : in_stack_guard(f.address)
                               ? "local memory: more than 64 KiB of it (stack overflow)"
                           : f.impossible ? "an address that no memory has, such as an uninitialised one"
                                          : describe(f.address);
  report("illegal access " + position() + (line.empty() ? "" : " at " + line) + ": " + what);
}
// Where a thread continues after a fault.
void on_fault() {
  report_fault();
  abandon_frames();
}

void handle(int signal, siginfo_t* info, void* context) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  if (!in_kernel() || !pthread_equal(launcher, pthread_self())) {
    if (signal != SIGFPE && in_device_range(address)) {
      static constexpr char kText[] = "[emulation] host code touched device memory\n";
      (void)!write(2, kText, sizeof kText - 1);
    }
    return pass_on(signal, info, context);
  }
  auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  fault = {address, reinterpret_cast<const void*>(registers[REG_RIP]), signal, info->si_code == SI_KERNEL};
  // Continues at the top of the fiber's stack, as after a call; the frames are lost.
  allow(reinterpret_cast<void*>(stack_top() - kStackBytes), kStackBytes);
  registers[REG_RSP] = static_cast<greg_t>(stack_top() - 8);
  registers[REG_RIP] = reinterpret_cast<greg_t>(&on_fault);
}

}  // namespace

void catch_faults() {
  if (users++ > 0) return;
  for (size_t i = 0; i < kSignals.size(); ++i) {
    struct sigaction mine{};
    mine.sa_sigaction = handle;
    mine.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(kSignals[i], &mine, &before[i]);
  }
}

void release_faults() {
  if (--users > 0) return;
  for (size_t i = 0; i < kSignals.size(); ++i) {
    struct sigaction now{};
    sigaction(kSignals[i], nullptr, &now);
    if (now.sa_sigaction == handle)
      sigaction(kSignals[i], &before[i], nullptr);  // otherwise someone else has replaced the handler
  }
}

void prepare_thread() {
  thread_local const SignalStack stack;
  (void)stack;
  launcher = pthread_self();
}

}  // namespace emulation
