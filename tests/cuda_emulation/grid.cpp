// Launches: checks the limits of an H200 and runs one block after another. The shared memory of each block is
// poisoned and has gaps between arrays, so that no block reads another block's data or another array
// unnoticed.
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <utility>

#include "bonsai/tests/cuda_emulation/sanitizer.h"
#include "bonsai/tests/cuda_emulation/scheduler.h"

namespace emulation {
namespace {

constexpr size_t kPage = 4096, kGap = 16;

struct Array {
  const void* key;
  uintptr_t at;
};
struct Shared {
  uintptr_t low = 0;
  size_t dynamic = 0;  // bytes of this launch
  size_t used = 0;
  size_t dirty = kSharedBytes;  // bytes that previous blocks may have written
  size_t limit = 0;             // of the kernel
  std::vector<Array> arrays;
};
Shared& shared() {
  static Shared& s = *new Shared;
  return s;
}
// Indexed by kernel and device.
std::map<std::pair<const void*, int>, size_t>& limits() {
  static auto& l = *new std::map<std::pair<const void*, int>, size_t>;
  return l;
}

void reserve_shared() {
  constexpr size_t kSpan = (kSharedBytes + kPage - 1) / kPage * kPage;
  void* range = mmap(nullptr, kSpan + 2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (range == MAP_FAILED ||
      mprotect(static_cast<char*>(range) + kPage, kSpan, PROT_READ | PROT_WRITE) != 0) {
    std::fprintf(stderr, "[emulation] no memory for a block's shared memory\n");
    std::abort();
  }
  shared().low = reinterpret_cast<uintptr_t>(range) + kPage;
}

[[noreturn]] void stop(const std::string& problem) {
  report(problem + " " + position());
  abandon_block();
}

// What is wrong with the shape of a launch; empty if nothing is.
const char* problem_of(const Shape& s, size_t limit) {
  const dim3 b = s.block, g = s.grid;
  const uint64_t threads = uint64_t{b.x} * b.y * b.z;
  if (threads == 0 || threads > kMaxThreads || b.x > 1024 || b.y > 1024 || b.z > 64)
    return "bad block size (at most 1,024 threads, 64 of them along z)";
  if (g.x == 0 || g.y == 0 || g.z == 0) return "a grid dimension is 0";
  if (g.x > 0x7fffffffu || g.y > 65535 || g.z > 65535) return "grid too large (y and z are limited to 65535)";
  if (s.smem > (limit ? limit : kStaticShared))
    return "dynamic shared memory above the limit set with allow_smem (48 KiB unless raised)";
  return nullptr;
}

void run_blocks(const Shape& shape) {
  static Sequence& order = *new Sequence;
  const unsigned n = shape.grid.x * shape.grid.y * shape.grid.z;
  order.set(n);
  for (unsigned i = 0; i < n && !running().failed; ++i) {
    const unsigned b = order[i];
    running().block = b;
    blockIdx = {b % shape.grid.x, b / shape.grid.x % shape.grid.y, b / shape.grid.x / shape.grid.y};
    run_block();
  }
}

}  // namespace

size_t shared_limit(const void* kernel) {
  const auto it = limits().find({kernel, current_device()});
  return it == limits().end() ? 0 : it->second;
}
void set_shared_limit(const void* kernel, size_t bytes) { limits()[{kernel, current_device()}] = bytes; }

void begin_shared() {
  Shared& s = shared();
  s.arrays.clear();
  s.used = s.dynamic ? s.dynamic + kGap : 0;
  auto* low = reinterpret_cast<void*>(s.low);
  allow(low, kSharedBytes);
  poison(s.low, std::min(std::max(s.dirty, s.used), kSharedBytes));
  forbid(low, kSharedBytes);
  allow(low, s.dynamic);
}
void end_shared() { shared().dirty = running().failed ? kSharedBytes : shared().used; }

void* dynamic_shared() {
  if (shared().dynamic == 0) stop("dynamic shared memory is used, but the launch gave 0 bytes");
  return reinterpret_cast<void*>(shared().low);
}

void* shared_array(const void* key, size_t bytes, size_t align) {
  Shared& s = shared();
  for (const Array& a : s.arrays)
    if (a.key == key) return reinterpret_cast<void*>(a.at);
  align = std::max<size_t>(align, 16);
  const size_t at = (s.used + align - 1) / align * align, end = at + bytes;
  // The emulator's gaps do not count.
  const size_t gaps = kGap * (s.arrays.size() + (s.dynamic > 0));
  if (end - gaps > (s.limit ? kSharedBytes : kStaticShared) || end - gaps - s.dynamic > kStaticShared ||
      end > kSharedBytes)
    stop("more than 48 KiB of static (or 227 KiB of all) shared memory");
  auto* const p = reinterpret_cast<void*>(s.low + at);
  allow(p, bytes);
  s.arrays.push_back({key, s.low + at});
  s.used = end + kGap;
  return p;
}

void run_grid(const Shape& shape, const Kernel& kernel) {
  if (!shared().low) reserve_shared();
  const Open open;
  prepare_thread();
  catch_faults();
  running() = {kernel.function, 0, false};
  gridDim = shape.grid;
  blockDim = shape.block;
  set_block_shape(shape.block);
  block.run = kernel.run;
  block.arguments = kernel.arguments;
  shared().dynamic = shape.smem;
  shared().limit = shared_limit(kernel.function);
  seed_sequences(options().seed);
  run_blocks(shape);
  if (!running().failed)
    if (const std::string bytes = damage(); !bytes.empty()) report(bytes + " by " + name_of(kernel.function));
  running().function = nullptr;
  release_faults();
}

cudaError_t launch(const Shape& shape, const Kernel& kernel) {
  const Call call("launch", kernel.from);
  if (const cudaError_t status = broken()) return status;
  if (const char* problem = problem_of(shape, shared_limit(kernel.function)))
    return refuse(cudaErrorInvalidConfiguration, "launch of " + name_of(kernel.function) + ": " + problem);
  if (!check_stream(shape.stream)) return cudaErrorInvalidResourceHandle;
  if (const std::string problem = problem_of_device(shape.stream); !problem.empty())
    return refuse(cudaErrorInvalidResourceHandle, "launch of " + name_of(kernel.function) + ": " + problem);
  ++counts().launches;
  if (!options().lazy) {
    order_with_default(shape.stream);
    run_grid(shape, kernel);
    return cudaSuccess;  // as on a device, a fault is reported by the next call
  }
  std::shared_ptr<void> arguments(kernel.copy(kernel.arguments), kernel.drop);
  Kernel later = kernel;
  later.arguments = arguments.get();
  return enqueue(shape.stream, [shape, later, arguments] { run_grid(shape, later); });
}

}  // namespace emulation
