// What the emulator's files share. Tests that link the emulator use the first part, too.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "bonsai/framework/backend/cuda/emulated_device.h"

// For a program that has loaded the library: all reports since the last call, a line each; they are then
// forgotten.
extern "C" const char* bonsai_emulation_errors();
// Six numbers: copies to the device, to the host, within the device, launches, cudaMallocs, synchronisations.
extern "C" void bonsai_emulation_counts(int64_t* out);

namespace emulation {

enum class Order { forward, reverse, random };  // of blocks, warps and lanes
enum class Algorithms { found, none, unusable };  // what cuBLASLt's heuristic says

struct Options {
  Order order = Order::forward;
  unsigned seed = 1;
  bool lazy = false;        // queued work runs when something waits for it, no sooner
  bool host_guard = false;  // host code faults on device memory
  bool quiet = false;       // reports are kept, but not printed
  size_t memory = size_t{8} << 30;
  int devices = 1;  // all with the same memory
  Algorithms algorithms = Algorithms::found;
};
Options& options();

struct Counts {
  int64_t to_device = 0, to_host = 0, within_device = 0, launches = 0, allocations = 0, synchronisations = 0;
};
Counts& counts();
int64_t switches();  // from one thread of a block to another

// What was done wrong, in the order in which it was seen.
const std::vector<std::string>& reports();
void forget_reports();

// ---- reports.cpp ----

// One call of the API: what it is named in reports, and from where it came. Calls exclude each other.
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

// A fault of the device's or of the work on it: from now on every call fails, as after a fault on a real one.
void report(const std::string& what);
// A call that was refused; names the call and its caller.
cudaError_t refuse(cudaError_t status, const std::string& what);
cudaError_t set_last(cudaError_t status);
cudaError_t broken();  // after a report, what every call returns
const std::string& name_of(const void* kernel);
std::string line_of(const void* code);  // "file.cu:12", or nothing without debug information
std::string text_of(const Place& place);

// ---- memory.cpp ----

struct Allocation {
  uintptr_t address = 0, bytes = 0;  // as the program sees it
  uintptr_t low = 0, high = 0;       // its pages; inaccessible ones lie before and behind
  unsigned number = 0;
};
bool in_device_range(uintptr_t p);  // of addresses, whether allocated or not
cudaError_t allocate(void** out, size_t bytes);
cudaError_t release(void* p);
size_t bytes_allocated();
bool is_device(const void* p, size_t bytes);                          // all of it in one live allocation
bool check_device(const void* p, size_t bytes, const char* what);     // or says why not
bool check_host(const void* p, size_t bytes, const char* what);
std::string describe(uintptr_t p);
std::string damage();  // to bytes behind an allocation, since the last launch
void poison(uintptr_t p, size_t bytes);

cudaError_t allocate_pinned(void** out, size_t bytes);
cudaError_t release_pinned(void* p);
bool is_pinned(const void* p);

// While one lives, device memory can be touched although the host is kept out of it.
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

// Faults are caught while there is device memory or a kernel runs.
void catch_faults();
void release_faults();
void prepare_thread();  // a stack for signals

// ---- scheduler.cpp ----

// Where the kernel is that runs; not in a kernel, function is null.
struct Running {
  const void* function = nullptr;
  unsigned block = 0;
  bool failed = false;
};
Running& running();
bool in_kernel();
std::string position();
[[noreturn]] void abandon_block();   // from a thread of it, whose frames are unwound
[[noreturn]] void abandon_frames();  // the same where they cannot be
uintptr_t stack_top();  // of the thread that runs
bool in_stack_guard(uintptr_t p);
void run_grid(const Shape& shape, const Kernel& kernel);

// ---- streams.cpp ----

cudaError_t enqueue(cudaStream_t stream, std::function<void()> work);
bool check_stream(cudaStream_t stream);
// Why this thread, with its current device, cannot start work on the stream, or nothing.
std::string problem_of_device(cudaStream_t stream);
int& current_device();  // of this thread
void finish(cudaStream_t stream);  // all of its work
void finish_all();
// Works off what the default stream waits for, or what waits for the default stream.
void order_with_default(cudaStream_t stream);

constexpr size_t kSharedBytes = 227 * 1024, kStaticShared = 48 * 1024;
size_t shared_limit(const void* kernel);  // of dynamic shared memory; 0 where none was set
void set_shared_limit(const void* kernel, size_t bytes);

}  // namespace emulation
