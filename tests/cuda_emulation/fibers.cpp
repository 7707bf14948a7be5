#include "bonsai/tests/cuda_emulation/fibers.h"

#include <sys/mman.h>

#include <array>
#include <cstdio>
#include <cstdlib>

#include "bonsai/tests/cuda_emulation/sanitizer.h"

#if !defined(__x86_64__)
#error "the emulated device needs an x86-64 processor"
#endif

// void emulation_switch(void** save, void* load): saves the callee-saved registers, switches stacks, returns
// there.
extern "C" __attribute__((visibility("hidden"))) void emulation_switch(void** save, void* load);
asm(R"(
.text
.globl emulation_switch
.hidden emulation_switch
.type emulation_switch,@function
emulation_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp,(%rdi)
  movq %rsi,%rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size emulation_switch,.-emulation_switch
)");

namespace emulation {
namespace {

constexpr size_t kPage = 4096, kStride = kStackBytes + kPage;

std::array<Fiber, kMaxFibers> fibers;
std::array<Fiber*, kMaxFibers> idle;
size_t idle_count = 0;
Fiber* previous = nullptr;  // the fiber that the last switch left
void (*body_of_fibers)() = nullptr;

void arrive(Fiber& at) { after_switch(at.kept, &previous->bottom, &previous->bytes); }

void begin() {
  Fiber first;  // has no fake stack yet
  arrive(first);
  body_of_fibers();
}

// Prepares the fiber to call begin(). The tops of the stacks are staggered; otherwise they would share one
// cache set.
void reset(Fiber& fiber) {
  const size_t index = static_cast<size_t>(&fiber - fibers.data());
  auto** top = reinterpret_cast<void**>(fiber.stack + kStackBytes - index % 32 * 128);
  *--top = nullptr;  // aligns the stack pointer as after a call
  *--top = reinterpret_cast<void*>(&begin);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  fiber.stack_pointer = top;
  fiber.kept = nullptr;
}

void make_fibers() {
  void* range = mmap(nullptr, kMaxFibers * kStride, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) {
    std::fprintf(stderr, "[emulation] no memory for 1,024 stacks\n");
    std::abort();
  }
  for (size_t i = kMaxFibers; i-- > 0;) {
    unsigned char* guard = static_cast<unsigned char*>(range) + i * kStride;
    mprotect(guard, kPage, PROT_NONE);
    fibers[i].stack = guard + kPage;
    fibers[i].bottom = fibers[i].stack;
    fibers[i].bytes = kStackBytes;
    idle[idle_count++] = &fibers[i];
  }
}

}  // namespace

Fiber launching;

Fiber& take_fiber(void (*body)()) {
  if (!body_of_fibers) make_fibers();
  body_of_fibers = body;
  Fiber& fiber = *idle[--idle_count];
  if (!fiber.stack_pointer) reset(fiber);
  return fiber;
}

void give_fiber(Fiber& fiber) { idle[idle_count++] = &fiber; }

void switch_fiber(Fiber& from, Fiber& to) {
  previous = &from;
  before_switch(&from.kept, to.bottom, to.bytes);
  emulation_switch(&from.stack_pointer, to.stack_pointer);
  arrive(from);
}

void end_fiber(Fiber& from, Fiber& to) {
  static void* dropped = nullptr;  // static, because the sanitizer destroys the stack below
  previous = &from;
  from.stack_pointer = nullptr;
  from.kept = nullptr;
  before_switch(nullptr, to.bottom, to.bytes);
  emulation_switch(&dropped, to.stack_pointer);
  __builtin_unreachable();
}

bool in_guard(const Fiber& fiber, uintptr_t p) {
  const auto low = reinterpret_cast<uintptr_t>(fiber.stack);
  return p < low && p >= low - kPage;
}

}  // namespace emulation
