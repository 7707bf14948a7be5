// Schedules the threads of a block. Each runs until it waits at a barrier or for other lanes; then the next
// one runs. The order, on which no kernel may rely, is lane by lane and warp by warp: forward, reverse or
// random. A thread that never waits needs no stack of its own: one fiber calls the kernel for one new thread
// after another, until one waits.
//
// A thread that reaches an invalid operation ends its block, and with it the launch.
#include "bonsai/tests/cuda_emulation/scheduler.h"

#include <bit>
#include <map>
#include <numeric>
#include <utility>

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace emulation {

Block block;

namespace {

constexpr unsigned kNone = ~0u, kAll = ~0u;

// The position in the block: the indices, in the chosen order, of the next warp and the next lane.
struct Walk {
  unsigned warp = 0, lane = 0;
  bool forward = true;
  Sequence warps, lanes;
};
Walk walk;
bool inside = false;  // whether a kernel is running
int64_t switch_count = 0;
uint32_t random_state = 1;

unsigned random_number() {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 17;
  random_state ^= random_state << 5;
  return random_state;
}

Warp& warp_of(unsigned thread) { return block.warp[thread / kLanes]; }
unsigned bit_of(unsigned thread) { return 1u << thread % kLanes; }
Thread& me() { return block.thread[block.current]; }

const char* text_of(Operation op) {
  static constexpr std::array names{"__shfl_sync", "__shfl_up_sync", "__shfl_down_sync", "__shfl_xor_sync",
                                    "__ballot_sync", "__any_sync",   "__all_sync",       "__syncwarp"};
  return names[static_cast<size_t>(op)];
}

std::string block_name() { return name_of(running().function) + " block " + std::to_string(running().block); }

// "3 thread(s) at __syncthreads file.cu:12 (first: thread 4); ..."
std::string who_waits(bool at_barrier) {
  std::map<std::string, std::pair<int, unsigned>> places;
  for (unsigned t = 0; t < block.threads; ++t) {
    const Warp& w = warp_of(t);
    if (!((at_barrier ? w.at_barrier : w.at_operation) & bit_of(t))) continue;
    const std::string what = at_barrier ? "__syncthreads" : text_of(block.thread[t].operation);
    auto& [count, first] = places[what + " " + text_of(block.thread[t].place)];
    if (count++ == 0) first = t;
  }
  std::string text;
  for (const auto& [place, who] : places)
    text += (text.empty() ? "" : "; ") + std::to_string(who.first) + " thread(s) at " + place +
            " (first: thread " + std::to_string(who.second) + ")";
  return text;
}

// Called if no thread can run: opens the barrier if all threads are there. Returns false if the block is done
// or was abandoned.
bool open_barrier() {
  unsigned waiting = 0, at_operation = 0, exited = 0;
  for (unsigned w = 0; w < block.warps; ++w) {
    waiting += static_cast<unsigned>(std::popcount(block.warp[w].at_barrier));
    at_operation += static_cast<unsigned>(std::popcount(block.warp[w].at_operation));
    exited += static_cast<unsigned>(std::popcount(block.warp[w].exited));
  }
  if (waiting + at_operation == 0) return false;
  const std::string gone = exited ? "; " + std::to_string(exited) + " thread(s) exited" : "";
  std::string problem;
  if (at_operation)
    problem = "deadlock in " + block_name() + ": " + who_waits(false) +
              (waiting ? "; " + who_waits(true) : "") + gone;
  else if (block.mixed_barriers)
    problem = "divergent barrier in " + block_name() + ": " + who_waits(true);
  else if (exited)
    problem = "barrier not reached by all threads in " + block_name() + ": " + who_waits(true) + gone;
  if (!problem.empty()) {
    report(problem);
    running().failed = true;
    return false;
  }
  for (unsigned w = 0; w < block.warps; ++w) {
    block.warp[w].runnable = std::exchange(block.warp[w].at_barrier, 0u);
  }
  block.barrier = {};
  block.last_votes = std::exchange(block.votes, 0);
  return true;
}

void begin_walk() {
  walk.warp = walk.lane = 0;
  walk.forward = options().order == Order::forward;
  walk.warps.set(block.warps);
  walk.lanes.set(kLanes);
}

// The next lane of the warp that can run, in cyclic order.
unsigned next_lane(unsigned runnable) {
  if (walk.forward) {
    const unsigned later = walk.lane < kLanes ? runnable & (kAll << walk.lane) : 0;
    const unsigned lane = static_cast<unsigned>(std::countr_zero(later ? later : runnable));
    walk.lane = lane + 1;
    return lane;
  }
  for (;;) {
    if (walk.lane >= kLanes) {
      walk.lane = 0;
      walk.lanes.set(kLanes);
    }
    const unsigned lane = walk.lanes[walk.lane++];
    if (runnable >> lane & 1) return lane;
  }
}

unsigned next_thread() {
  for (;;) {
    for (; walk.warp < block.warps; ++walk.warp, walk.lane = 0) {
      const unsigned w = walk.warps[walk.warp];
      if (const unsigned runnable = block.warp[w].runnable) return w * kLanes + next_lane(runnable);
    }
    if (!open_barrier()) return kNone;
    begin_walk();
  }
}

void enter(unsigned thread) {
  block.current = thread;
  threadIdx = block.index[thread];
}

void run_threads();

// The fiber of the next thread; a new thread gets one.
Fiber& fiber_of(unsigned thread) {
  Warp& w = warp_of(thread);
  Thread& t = block.thread[thread];
  if (w.fresh & bit_of(thread)) {
    w.fresh &= ~bit_of(thread);
    t.fiber = &take_fiber(run_threads);
  }
  ++switch_count;
  return *t.fiber;
}

void leave_block() {
  Warp& mine = warp_of(block.current);
  mine.runnable &= ~bit_of(block.current);
  mine.exited |= bit_of(block.current);
}

struct Abandoned {};  // thrown to unwind a thread whose block was abandoned

// The function that every fiber runs.
void run_threads() {
  for (;;) {
    try {
      block.run(block.arguments);
    } catch (const Abandoned&) {
    }
    Fiber& fiber = *me().fiber;
    leave_block();
    const unsigned next = running().failed ? kNone : next_thread();
    if (next == kNone) {
      give_fiber(fiber);
      switch_fiber(fiber, launching);
      continue;
    }
    enter(next);
    Warp& w = warp_of(next);
    if (w.fresh & bit_of(next)) {
      w.fresh &= ~bit_of(next);
      block.thread[next].fiber = &fiber;
    } else {
      give_fiber(fiber);
      switch_fiber(fiber, fiber_of(next));
    }
  }
}

// Runs other threads until this one is runnable again.
void wait() {
  const unsigned self = block.current;
  const unsigned next = next_thread();
  if (next == self) return;
  Fiber& mine = *block.thread[self].fiber;
  if (next == kNone) {
    switch_fiber(mine, launching);  // the block was abandoned
  } else {
    enter(next);
    switch_fiber(mine, fiber_of(next));
  }
  if (running().failed) throw Abandoned{};
}

// Unwinds the threads that were waiting when the block was abandoned, and frees their stacks.
void drop_threads() {
  for (unsigned t = 0; t < block.threads; ++t) {
    Warp& w = warp_of(t);
    if ((w.fresh | w.exited) & bit_of(t)) continue;
    block.current = t;
    inside = true;
    switch_fiber(launching, *block.thread[t].fiber);
    inside = false;
  }
}

void begin_block() {
  for (unsigned w = 0; w < block.warps; ++w) {
    const unsigned lanes = block.threads - w * kLanes;
    Warp& warp = block.warp[w];
    warp = {};
    warp.exist = warp.fresh = warp.runnable = lanes >= kLanes ? kAll : (1u << lanes) - 1;
  }
  block.barrier = {};
  block.mixed_barriers = false;
  block.votes = 0;
}

// The lane whose value this lane reads.
unsigned source_of(Operation op, unsigned lane, int argument, int width) {
  const unsigned w = static_cast<unsigned>(width), by = static_cast<unsigned>(argument),
                 base = lane & ~(w - 1);
  switch (op) {
    case Operation::shfl: return base + (by & (w - 1));
    case Operation::shfl_up: return lane - base >= by ? lane - by : lane;
    case Operation::shfl_down: return by < base + w - lane ? lane + by : lane;
    case Operation::shfl_xor: return (lane ^ by) < base + w ? lane ^ by : lane;
    default: return lane;
  }
}

[[noreturn]] void stop(const Thread& t, const std::string& problem) {
  report(std::string(text_of(t.operation)) + " at " + text_of(t.place) + ": " + problem + " " + position());
  abandon_block();
}

bool same_operation(const Thread& a, const Thread& b) {
  return a.operation == b.operation && a.mask == b.mask && a.width == b.width && a.place == b.place;
}

[[noreturn]] void stop_divergent(const Thread& a, const Thread& b) {
  const auto text = [](const Thread& t) {
    return "thread " + std::to_string(&t - block.thread.data()) + " at " + text_of(t.operation) + " " +
           text_of(t.place);
  };
  report("divergent warp operation: " + text(a) + ", " + text(b) + " " + position());
  abandon_block();
}

// Completes the operation: all lanes of the mask have arrived.
void complete(Thread* lanes, unsigned mask) {
  const Thread& first = lanes[std::countr_zero(mask)];
  unsigned ballot = 0;
  for (unsigned rest = mask; rest; rest &= rest - 1) {
    const int i = std::countr_zero(rest);
    if (!same_operation(lanes[i], first)) stop_divergent(lanes[i], first);
    ballot |= static_cast<unsigned>(lanes[i].value & 1) << i;
  }
  for (unsigned rest = mask; rest; rest &= rest - 1) {
    const unsigned i = static_cast<unsigned>(std::countr_zero(rest));
    Thread& t = lanes[i];
    switch (first.operation) {
      case Operation::ballot: t.result = ballot; continue;
      case Operation::any: t.result = ballot != 0; continue;
      case Operation::all: t.result = ballot == mask; continue;
      case Operation::syncwarp: continue;
      default: break;
    }
    const unsigned source = source_of(first.operation, i, t.argument, t.width);
    if (!(mask >> source & 1))
      stop(t, "lane " + std::to_string(i) + " reads lane " + std::to_string(source) +
                  ", which is not in the mask");
    t.result = lanes[source].value;
  }
}

}  // namespace

Running& running() {
  static Running r;
  return r;
}
bool in_kernel() { return inside; }
int64_t switches() { return switch_count; }
uintptr_t stack_top() { return reinterpret_cast<uintptr_t>(me().fiber->stack) + kStackBytes; }
bool in_stack_guard(uintptr_t p) { return in_guard(*me().fiber, p); }

std::string position() {
  if (!inside) return "on the host";
  std::string text = "in " + name_of(running().function);
  const auto add = [&](const char* what, const uint3& v) {
    text += what + std::to_string(v.x) + "," + std::to_string(v.y) + "," + std::to_string(v.z) + ")";
  };
  add(" block (", blockIdx);
  add(" thread (", threadIdx);
  return text;
}

void abandon_block() {
  running().failed = true;
  throw Abandoned{};
}
void abandon_frames() {
  running().failed = true;
  leave_block();
  Fiber& fiber = *me().fiber;
  give_fiber(fiber);
  end_fiber(fiber, launching);
}

void seed_sequences(unsigned seed) { random_state = seed * 2654435761u | 1u; }

void Sequence::set(unsigned n) {
  n_ = n;
  order_ = options().order;
  if (order_ != Order::random) return;
  shuffled_.resize(n);
  std::iota(shuffled_.begin(), shuffled_.end(), 0u);
  for (unsigned i = n; i > 1; --i) std::swap(shuffled_[i - 1], shuffled_[random_number() % i]);
}

void set_block_shape(dim3 shape) {
  if (shape.x == block.shape.x && shape.y == block.shape.y && shape.z == block.shape.z) return;
  block.shape = shape;
  block.threads = shape.x * shape.y * shape.z;
  block.warps = (block.threads + kLanes - 1) / kLanes;
  unsigned t = 0;
  for (unsigned z = 0; z < shape.z; ++z)
    for (unsigned y = 0; y < shape.y; ++y)
      for (unsigned x = 0; x < shape.x; ++x) block.index[t++] = {x, y, z};
}

void run_block() {
  begin_shared();
  begin_block();
  begin_walk();
  const unsigned first = next_thread();
  enter(first);
  inside = true;
  switch_fiber(launching, fiber_of(first));
  inside = false;
  if (running().failed) drop_threads();
  end_shared();
}

int block_barrier(bool vote, Place place) {
  const unsigned bit = bit_of(block.current);
  Warp& w = warp_of(block.current);
  me().place = place;
  if (!block.barrier.file)
    block.barrier = place;
  else if (!(block.barrier == place))
    block.mixed_barriers = true;
  block.votes += vote;
  w.runnable &= ~bit;
  w.at_barrier |= bit;
  wait();
  return block.last_votes;
}

uint64_t warp_operation(Operation op, unsigned mask, uint64_t value, int argument, int width, Place place) {
  const unsigned lane = block.current % kLanes, bit = 1u << lane;
  Warp& w = warp_of(block.current);
  Thread* const lanes = &block.thread[block.current - lane];
  Thread& self = lanes[lane];
  self.operation = op;
  self.mask = mask;
  self.value = value;
  self.argument = argument;
  self.width = width;
  self.place = place;
  if (!(mask & bit)) stop(self, "lane " + std::to_string(lane) + " is not in its own mask");
  if (mask & ~w.exist)
    stop(self,
         "the mask names lanes that do not exist (block of " + std::to_string(block.threads) + " threads)");
  if (mask & w.exited)
    stop(self, "lane " + std::to_string(std::countr_zero(mask & w.exited)) + " of the mask has exited");
  const unsigned waiting = mask & w.at_operation;
  if (waiting && !same_operation(lanes[std::countr_zero(waiting)], self))
    stop_divergent(self, lanes[std::countr_zero(waiting)]);
  if ((waiting | bit) == mask) {
    complete(lanes, mask);
    w.at_operation &= ~mask;
    w.runnable |= mask;
    return self.result;
  }
  w.runnable &= ~bit;
  w.at_operation |= bit;
  wait();
  return self.result;
}

unsigned lanes_left() {
  const Warp& w = warp_of(block.current);
  return w.exist & ~w.exited;
}

void trap(Place place) {
  report("__trap() at " + text_of(place) + " " + position());
  abandon_block();
}

}  // namespace emulation
