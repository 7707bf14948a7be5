// DeviceMemory, the functions that a device supplies, and Pool, which caches freed blocks for reuse.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "bonsai/framework/core/device.h"

namespace bonsai {

// `copy` works between host and device in either direction.
struct DeviceMemory {
  // Allocates `bytes`; only the first `used` will be touched. Returns null when out of memory.
  void* (*allocate)(size_t bytes, size_t used);
  void (*release)(void* block);
  void (*copy)(void* to, const void* from, size_t bytes);
  void (*synchronise)();
  int64_t (*free_bytes)() = nullptr;  // free device memory; null if the device cannot tell
  size_t smallest_released = 0;       // `release` must not be given blocks smaller than this
};

// Rounds blocks up to size classes, eight per power of two (at most 12.5 % wasted), and caches freed
// blocks. Training steps repeat their shapes, so from the second step on no block is allocated.
class Pool {
 public:
  struct Statistics {
    int64_t in_use = 0, peak = 0, cached = 0;  // bytes
    int64_t misses = 0;                        // blocks allocated by the device, not taken from the cache
  };

  explicit Pool(DeviceMemory memory) : memory_(memory) {}
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Returns at least 64-byte aligned memory. Throws an Error that names the size when out of memory.
  void* take(size_t bytes);
  void give_back(void* block, size_t bytes);  // `bytes` as passed to take()
  void trim();  // releases the cached blocks that are large enough to the device
  Statistics statistics() const;
  const DeviceMemory& memory() const { return memory_; }

 private:
  void trim_locked();
  [[noreturn]] void fail_no_memory(size_t bytes) const;

  DeviceMemory memory_;
  mutable std::mutex mutex_;
  std::array<std::vector<void*>, 512> free_;  // by size class
  Statistics statistics_;
};

// The pool of a device. A backend calls install_memory before the first tensor is created there.
Pool& pool(Device device);
void install_memory(Device::Type type, DeviceMemory memory);

// A standard allocator on the host's pool, for containers and for control blocks of shared_ptr.
template <class T>
struct PoolAllocator {
  using value_type = T;
  PoolAllocator() = default;
  template <class U>
  PoolAllocator(const PoolAllocator<U>&) noexcept {}
  T* allocate(size_t n) { return static_cast<T*>(pool({}).take(n * sizeof(T))); }
  void deallocate(T* block, size_t n) { pool({}).give_back(block, n * sizeof(T)); }
  bool operator==(const PoolAllocator&) const = default;
};

}  // namespace bonsai
