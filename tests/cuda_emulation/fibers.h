// The stacks on which the threads of a block run. A switch between two takes ten instructions and no system
// call.
#pragma once

#include <cstddef>
#include <cstdint>

namespace emulation {

inline constexpr std::size_t kStackBytes = 64 * 1024, kMaxFibers = 1024;

struct Fiber {
  void* stack_pointer = nullptr;
  unsigned char* stack = nullptr;  // its lowest byte; null for the launching stack
  const void* bottom = nullptr;    // the same for the sanitizer, whose fake stack is `kept`
  std::size_t bytes = 0;
  void* kept = nullptr;
};

extern Fiber launching;  // the stack of the thread that launches

// A fiber that will call `body`, or continue where it was when it was given back.
Fiber& take_fiber(void (*body)());
void give_fiber(Fiber& fiber);
// Returns when another fiber switches back to `from`.
void switch_fiber(Fiber& from, Fiber& to);
// Ends `from`: drops its frames, so that it will call its body again.
[[noreturn]] void end_fiber(Fiber& from, Fiber& to);

bool in_guard(const Fiber& fiber, std::uintptr_t p);  // whether p is in the guard page below the stack

}  // namespace emulation
