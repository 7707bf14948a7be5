// Stacks on which threads of a block run, and the switch from one to another: ten instructions, no system
// call.
#pragma once

#include <cstddef>
#include <cstdint>

namespace emulation {

inline constexpr std::size_t kStackBytes = 64 * 1024, kMaxFibers = 1024;

struct Fiber {
  void* stack_pointer = nullptr;
  unsigned char* stack = nullptr;  // its lowest byte; null for the stack that launches come from
  const void* bottom = nullptr;    // the same for the sanitizer, which has frames of its own to keep
  std::size_t bytes = 0;
  void* kept = nullptr;
};

extern Fiber launching;  // the stack that launches come from

// One that stands before the call of body, or wherever it was when it was given back.
Fiber& take_fiber(void (*body)());
void give_fiber(Fiber& fiber);
// Returns when another switches back to `from`.
void switch_fiber(Fiber& from, Fiber& to);
// Ends `from`: its frames are dropped, and it stands before the call of body again.
[[noreturn]] void end_fiber(Fiber& from, Fiber& to);

bool in_guard(const Fiber& fiber, std::uintptr_t p);  // just below the stack

}  // namespace emulation
