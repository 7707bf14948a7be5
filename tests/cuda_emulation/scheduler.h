// Runs the threads of one block: see scheduler.cpp.
#pragma once

#include <array>
#include <vector>

#include "bonsai/tests/cuda_emulation/emulation.h"
#include "bonsai/tests/cuda_emulation/fibers.h"

namespace emulation {

inline constexpr unsigned kLanes = 32, kMaxThreads = 1024;

// What a waiting thread waits for, and where.
struct Thread {
  Fiber* fiber = nullptr;
  Place place{};
  Operation operation{};
  unsigned mask = 0;
  int argument = 0, width = 32;
  uint64_t value = 0, result = 0;
};

// One bit per lane. A lane that exists is in exactly one of runnable, at_barrier, at_operation and exited.
struct Warp {
  unsigned exist = 0, fresh = 0, runnable = 0, at_barrier = 0, at_operation = 0, exited = 0;
};

struct Block {
  unsigned threads = 0, warps = 0;
  unsigned current = 0;  // the running thread
  std::array<Warp, kMaxThreads / kLanes> warp{};
  std::array<Thread, kMaxThreads> thread{};
  std::array<uint3, kMaxThreads> index{};  // threadIdx
  dim3 shape{0, 0, 0};                      // the shape for which `index` is valid
  void (*run)(void*) = nullptr;
  void* arguments = nullptr;
  // The barrier at which threads are arriving.
  Place barrier{};
  bool mixed_barriers = false;
  int votes = 0, last_votes = 0;
};
extern Block block;

void set_block_shape(dim3 shape);
void run_block();  // sets running().failed if the block was abandoned

// The order of n blocks, warps or lanes.
class Sequence {
 public:
  void set(unsigned n);  // uses the order in the options; shuffles again if it is random
  unsigned operator[](unsigned i) const {
    return order_ == Order::random ? shuffled_[i] : order_ == Order::reverse ? n_ - 1 - i : i;
  }

 private:
  unsigned n_ = 0;
  Order order_ = Order::forward;
  std::vector<unsigned> shuffled_;
};
void seed_sequences(unsigned seed);

// Defined in grid.cpp.
void begin_shared();
void end_shared();

}  // namespace emulation
