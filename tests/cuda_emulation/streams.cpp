// Streams, events and queued work. Work runs immediately unless the option `lazy` is set. With it, work runs
// only when something waits for it, the latest moment that CUDA allows, so that a missing synchronisation
// gives stale data.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>

#include "bonsai/tests/cuda_emulation/emulation.h"

namespace emulation {
namespace {

struct Stream;
// The event's recording number n has completed when `done` >= n.
struct Event {
  uint64_t recorded = 0, done = 0;
  Stream* stream = nullptr;  // where it was last recorded
  int64_t time = 0;          // nanoseconds
};
struct Item {
  std::function<void()> run;
  Event* wait = nullptr;
  Event* record = nullptr;
  uint64_t time = 0;  // which recording of the event
};
struct Stream {
  std::deque<Item> items;
  bool blocking = true;
  int device = 0;
};

struct State {
  Stream standard;
  std::vector<Stream*> streams{&standard};
  std::vector<Event*> events;
};
State& state() {
  static State& s = *new State;
  return s;
}

Stream* stream_of(cudaStream_t s) {
  if (!s || s == cudaStreamLegacy || s == cudaStreamPerThread) return &state().standard;
  return reinterpret_cast<Stream*>(s);
}

void wait_for(Event& event, uint64_t time);

void run_first(Stream& s) {
  const Item item = std::move(s.items.front());
  s.items.pop_front();
  if (item.wait) wait_for(*item.wait, item.time);
  if (item.run && !broken()) item.run();
  if (item.record) {
    item.record->done = std::max(item.record->done, item.time);
    item.record->time = std::chrono::steady_clock::now().time_since_epoch().count();
  }
}

void wait_for(Event& event, uint64_t time) {
  while (event.done < time && event.stream && !event.stream->items.empty()) run_first(*event.stream);
}

void drain(Stream& s) {
  while (!s.items.empty()) run_first(s);
}

void add(Stream& s, Item item) {
  s.items.push_back(std::move(item));
  if (!options().lazy) drain(s);
}

Event* known(cudaEvent_t e, const char* call) {
  auto* event = reinterpret_cast<Event*>(e);
  if (std::find(state().events.begin(), state().events.end(), event) != state().events.end()) return event;
  refuse(cudaErrorInvalidResourceHandle, std::string(call) + ": no such event");
  return nullptr;
}

}  // namespace

int& current_device() {
  thread_local int device = 0;
  return device;
}

std::string problem_of_device(cudaStream_t s) {
  const int current = current_device(), device = stream_of(s)->device;
  if (stream_of(s) == &state().standard || device == current) return "";
  return "the stream is of device " + std::to_string(device) + ", but the current device of this thread is " +
         std::to_string(current);
}

bool check_stream(cudaStream_t s) {
  const auto& all = state().streams;
  if (!s || std::find(all.begin(), all.end(), stream_of(s)) != all.end()) return true;
  refuse(cudaErrorInvalidResourceHandle, "no such stream: never made, or destroyed");
  return false;
}

// The default stream and all blocking streams wait for each other.
void order_with_default(cudaStream_t stream) {
  State& all = state();
  Stream* s = stream_of(stream);
  if (s == &all.standard) {
    for (Stream* other : all.streams)
      if (other != s && other->blocking) drain(*other);
  } else if (s->blocking) {
    drain(all.standard);
  }
}

cudaError_t enqueue(cudaStream_t stream, std::function<void()> work) {
  if (broken()) return broken();
  if (!check_stream(stream)) return cudaErrorInvalidResourceHandle;
  order_with_default(stream);
  add(*stream_of(stream), {std::move(work), nullptr, nullptr, 0});
  return cudaSuccess;
}

void finish(cudaStream_t stream) { drain(*stream_of(stream)); }
void finish_all() {
  for (Stream* s : state().streams) drain(*s);
}

}  // namespace emulation

using namespace emulation;

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned flags) {
  const Call call("cudaStreamCreateWithFlags", __builtin_return_address(0));
  auto* made = new Stream;
  made->blocking = !(flags & cudaStreamNonBlocking);
  made->device = current_device();
  state().streams.push_back(made);
  *s = reinterpret_cast<cudaStream_t>(made);
  return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t* s) { return cudaStreamCreateWithFlags(s, 0); }
cudaError_t cudaStreamDestroy(cudaStream_t s) {
  const Call call("cudaStreamDestroy", __builtin_return_address(0));
  Stream* stream = stream_of(s);
  if (!check_stream(s) || stream == &state().standard) return cudaErrorInvalidResourceHandle;
  drain(*stream);
  for (Event* e : state().events)
    if (e->stream == stream) e->stream = nullptr;
  std::erase(state().streams, stream);
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t s) {
  const Call call("cudaStreamSynchronize", __builtin_return_address(0));
  if (!check_stream(s)) return cudaErrorInvalidResourceHandle;
  ++counts().synchronisations;
  order_with_default(s);
  finish(s);
  return broken();
}
cudaError_t cudaStreamQuery(cudaStream_t s) {
  const Call call("cudaStreamQuery", __builtin_return_address(0));
  if (!check_stream(s)) return cudaErrorInvalidResourceHandle;
  finish(s);
  return broken();
}
cudaError_t cudaDeviceSynchronize() {
  const Call call("cudaDeviceSynchronize", __builtin_return_address(0));
  ++counts().synchronisations;
  finish_all();
  return broken();
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned) {
  const Call call("cudaEventCreateWithFlags", __builtin_return_address(0));
  state().events.push_back(new Event);
  *e = reinterpret_cast<cudaEvent_t>(state().events.back());
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* e) { return cudaEventCreateWithFlags(e, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t e) {
  const Call call("cudaEventDestroy", __builtin_return_address(0));
  Event* event = known(e, "cudaEventDestroy");
  if (!event) return cudaErrorInvalidResourceHandle;
  finish_all();
  std::erase(state().events, event);
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
  const Call call("cudaEventRecord", __builtin_return_address(0));
  Event* event = known(e, "cudaEventRecord");
  if (!event || !check_stream(s)) return cudaErrorInvalidResourceHandle;
  event->stream = stream_of(s);
  add(*event->stream, {nullptr, nullptr, event, ++event->recorded});
  return broken();
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned) {
  const Call call("cudaStreamWaitEvent", __builtin_return_address(0));
  Event* event = known(e, "cudaStreamWaitEvent");
  if (!event || !check_stream(s)) return cudaErrorInvalidResourceHandle;
  add(*stream_of(s), {nullptr, event, nullptr, event->recorded});
  return broken();
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
  const Call call("cudaEventSynchronize", __builtin_return_address(0));
  Event* event = known(e, "cudaEventSynchronize");
  if (!event) return cudaErrorInvalidResourceHandle;
  wait_for(*event, event->recorded);
  return broken();
}
cudaError_t cudaEventQuery(cudaEvent_t e) {
  const Call call("cudaEventQuery", __builtin_return_address(0));
  return cudaEventSynchronize(e);
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to) {
  const Call call("cudaEventElapsedTime", __builtin_return_address(0));
  const Event *a = known(from, "cudaEventElapsedTime"), *b = known(to, "cudaEventElapsedTime");
  if (!a || !b || a->done == 0 || b->done == 0) return cudaErrorInvalidResourceHandle;
  *ms = static_cast<float>(static_cast<double>(b->time - a->time) * 1e-6);
  return cudaSuccess;
}

}  // extern "C"
