// Declarations shared by the emulator's files. Tests that link the emulator use the first part, too.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "bonsai/framework/backend/cuda/emulated_device.h"

// For a program that has loaded the library: returns all reports since the last call, one per line, and
// deletes them.
extern "C" const char* bonsai_emulation_errors();
// Writes six numbers: copies to the device, to the host, within the device; launches; cudaMallocs;
// synchronisations.
extern "C" void bonsai_emulation_counts(int64_t* out);

namespace emulation {

enum class Order { forward, reverse, random };  // the order of blocks, warps and lanes
enum class Algorithms { found, none, unusable };  // the result of cuBLASLt's heuristic

struct Options {
  Order order = Order::forward;
  unsigned seed = 1;
  bool lazy = false;        // queued work runs only when something waits for it
  bool host_guard = false;  // host code that accesses device memory faults
  bool quiet = false;       // reports are recorded but not printed
  size_t memory = size_t{8} << 30;
  int devices = 1;  // they share one memory
  Algorithms algorithms = Algorithms::found;
};
Options& options();

struct Counts {
  int64_t to_device = 0, to_host = 0, within_device = 0, launches = 0, allocations = 0, synchronisations = 0;
};
Counts& counts();
int64_t switches();  // number of switches between threads of a block

// The faults found so far, in order.
const std::vector<std::string>& reports();
void forget_reports();

// ---- reports.cpp ----

// One call of the API: its name in reports and its call site. Calls exclude each other.
class Call {
 public:
  explicit Call(const char* name, const void* from = nullptr);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

 private:
  std::lock_guard<std::recursive_mutex> lock_;
  const Call* outer_;
  const char* name_;
  const void* from_;
  friend std::string caller();
};

// Reports a fault of a kernel or of device memory. From then on every call fails, as on a real device.
void report(const std::string& what);
// Reports that a call was rejected; names the call and its caller.
cudaError_t refuse(cudaError_t status, const std::string& what);
cudaError_t set_last(cudaError_t status);
cudaError_t broken();  // what every call returns after a report
const std::string& name_of(const void* kernel);
std::string line_of(const void* code);  // "file.cu:12", or nothing without debug information
std::string text_of(const Place& place);

// ---- memory.cpp ----

struct Allocation {
  uintptr_t address = 0, bytes = 0;  // as the program sees it
  uintptr_t low = 0, high = 0;       // its pages; the pages before and after them are inaccessible
  unsigned number = 0;
};
bool in_device_range(uintptr_t p);  // whether it is a device address, allocated or not
cudaError_t allocate(void** out, size_t bytes);
cudaError_t release(void* p);
size_t bytes_allocated();
bool is_device(const void* p, size_t bytes);  // whether all bytes are in one live allocation
bool check_device(const void* p, size_t bytes, const char* what);  // the same, but reports if not
bool check_host(const void* p, size_t bytes, const char* what);
std::string describe(uintptr_t p);
std::string damage();  // describes writes past the end of allocations since the last launch
void poison(uintptr_t p, size_t bytes);

cudaError_t allocate_pinned(void** out, size_t bytes);
cudaError_t release_pinned(void* p);
bool is_pinned(const void* p);

// During its lifetime, device memory is accessible even if host_guard is set.
class Open {
 public:
  Open();
  ~Open();
  Open(const Open&) = delete;
  Open& operator=(const Open&) = delete;

 private:
  bool was_;
};

// ---- signals.cpp ----

// Signals are handled while device memory is allocated or a kernel runs.
void catch_faults();
void release_faults();
void prepare_thread();  // gives the calling thread an alternate signal stack

// ---- scheduler.cpp ----

// The running kernel; `function` is null if none is running.
struct Running {
  const void* function = nullptr;
  unsigned block = 0;
  bool failed = false;
};
Running& running();
bool in_kernel();
std::string position();
[[noreturn]] void abandon_block();   // called by a thread of the block; unwinds its frames
[[noreturn]] void abandon_frames();  // the same if they cannot be unwound
uintptr_t stack_top();  // of the running thread
bool in_stack_guard(uintptr_t p);
void run_grid(const Shape& shape, const Kernel& kernel);

// ---- streams.cpp ----

cudaError_t enqueue(cudaStream_t stream, std::function<void()> work);
bool check_stream(cudaStream_t stream);
// Why this thread, with its current device, cannot use the stream; empty if it can.
std::string problem_of_device(cudaStream_t stream);
int& current_device();  // of this thread
void finish(cudaStream_t stream);  // runs all of its queued work
void finish_all();
// Runs the queued work that the default stream waits for, or that waits for the default stream.
void order_with_default(cudaStream_t stream);

constexpr size_t kSharedBytes = 227 * 1024, kStaticShared = 48 * 1024;
size_t shared_limit(const void* kernel);  // bytes of dynamic shared memory; 0 if none was set
void set_shared_limit(const void* kernel, size_t bytes);

}  // namespace emulation
