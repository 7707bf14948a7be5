// A device's memory behind four functions, and the pool that keeps freed blocks for the next step.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "bonsai/framework/core/device.h"

namespace bonsai {

// What a device supplies. `copy` works between host and device in either direction.
struct DeviceMemory {
  // Of which `used` are wanted now; null when there is none left.
  void* (*allocate)(size_t bytes, size_t used);
  void (*release)(void* block);
  void (*copy)(void* to, const void* from, size_t bytes);
  void (*synchronise)();
  int64_t (*free_bytes)() = nullptr;  // that are left; null where the system alone knows
  size_t smallest_released = 0;       // of the blocks that `release` takes
};

// Blocks are rounded up to size classes, eight a doubling (at most 12.5 % lost), and kept when freed:
// a training step repeats its shapes, so from the second step on nothing reaches the system.
class Pool {
 public:
  struct Statistics {
    int64_t in_use = 0, peak = 0, cached = 0;  // bytes
    int64_t misses = 0;                        // blocks that had to come from the device
  };

  explicit Pool(DeviceMemory memory) : memory_(memory) {}
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  void* take(size_t bytes);  // at least 64-byte aligned; throws, naming the size, when none is left
  void give_back(void* block, size_t bytes);  // the same number of bytes
  void trim();  // returns cached blocks to the device: all that it takes
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

// The pool of a device. A backend installs its memory before the first tensor is made there.
Pool& pool(Device device);
void install_memory(Device::Type type, DeviceMemory memory);

// Containers and control blocks from the host's pool, which keeps them for the next step.
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
