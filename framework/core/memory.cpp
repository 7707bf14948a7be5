#include "bonsai/framework/core/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "bonsai/framework/core/error.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#include <sanitizer/asan_interface.h>
#endif
#endif
#ifndef ASAN_POISON_MEMORY_REGION
#define ASAN_POISON_MEMORY_REGION(block, bytes) ((void)(block), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(block, bytes) ((void)(block), (void)(bytes))
#endif

namespace bonsai {
namespace {

constexpr size_t kSmallest = 64;

// Class c holds blocks of (8 + c % 8) << (c / 8 + 3) bytes: 64, 72, ..., 120, 128, 144, ...
int size_class(size_t bytes) {
  bytes = std::max(bytes, kSmallest);
  const int shift = std::bit_width(bytes - 1) - 4;  // bytes >> shift is in 8..16
  const size_t eighths = (bytes + (size_t{1} << shift) - 1) >> shift;
  return static_cast<int>(eighths) - 8 + 8 * (shift - 3);
}
size_t class_bytes(int c) { return size_t(8 + c % 8) << (c / 8 + 3); }

// Requests huge pages: a matrix product reads rows that lie far apart, and with small pages each row is
// another TLB miss. Blocks smaller than a huge page are cut from slabs, which are never released. The caller
// holds the pool's lock.
constexpr size_t kHugePage = size_t{2} << 20, kSlab = 8 * kHugePage;

char* in_huge_pages(size_t bytes, size_t used) {
  void* block = nullptr;
  if (posix_memalign(&block, kHugePage, bytes) != 0) return nullptr;
#if defined(MADV_HUGEPAGE)
  madvise(block, used / kHugePage * kHugePage, MADV_HUGEPAGE);  // a hint; it may fail
#endif
  return static_cast<char*>(block);
}

void* host_allocate(size_t bytes, size_t used) {
  // Huge pages beyond `used` would back the unused tail with memory.
  if (bytes >= kHugePage) return in_huge_pages(bytes, used);
  static char* slab = nullptr;
  static size_t left = 0;
  bytes = (bytes + 63) / 64 * 64;
  if (left < bytes) {
    char* next = in_huge_pages(kSlab, kSlab);
    if (!next) return nullptr;
    slab = next, left = kSlab;
  }
  left -= bytes;
  return slab + left;
}
void host_copy(void* to, const void* from, size_t bytes) {
  if (bytes) std::memcpy(to, from, bytes);
}
void host_synchronise() {}

constexpr DeviceMemory kHost{host_allocate, std::free, host_copy, host_synchronise, nullptr, kHugePage};

std::array<std::unique_ptr<Pool>, kDeviceTypes>& pools() {
  // Never destroyed: tensors with static storage duration return their blocks after main.
  static auto& all = *new std::array<std::unique_ptr<Pool>, kDeviceTypes>{std::make_unique<Pool>(kHost)};
  return all;
}

}  // namespace

void* Pool::take(size_t bytes) {
  const int c = size_class(bytes);
  const size_t size = class_bytes(c);
  std::lock_guard lock(mutex_);
  void* block = nullptr;
  if (auto& list = free_[c]; !list.empty()) {
    block = list.back();
    list.pop_back();
    statistics_.cached -= size;
  } else {
    ++statistics_.misses;
    block = memory_.allocate(size, bytes);
    if (!block) {
      trim_locked();
      block = memory_.allocate(size, bytes);
    }
    if (!block) fail_no_memory(bytes);
  }
  statistics_.in_use += size;
  statistics_.peak = std::max(statistics_.peak, statistics_.in_use);
  if (memory_.allocate == host_allocate) {
    ASAN_UNPOISON_MEMORY_REGION(block, bytes);
    ASAN_POISON_MEMORY_REGION(static_cast<char*>(block) + (bytes + 7) / 8 * 8,
                              size - std::min(size, (bytes + 7) / 8 * 8));
#ifndef NDEBUG
    std::memset(block, 0xff, bytes);  // NaN in every float exposes reads of uninitialised elements
#endif
  }
  return block;
}

void Pool::fail_no_memory(size_t bytes) const {
  const bool of_device = memory_.free_bytes != nullptr;
  fail("memory",
       "out of memory: cannot allocate {} bytes; tensors hold {} bytes{}; lower trainer.batch_size or "
       "model.block_size, or use a smaller model{}",
       bytes, statistics_.in_use, of_device ? fmt::format(" and {} are free", memory_.free_bytes()) : "",
       of_device ? " or --device cpu" : "");
}

void Pool::give_back(void* block, size_t bytes) {
  const int c = size_class(bytes);
  std::lock_guard lock(mutex_);
  free_[c].push_back(block);
  statistics_.in_use -= class_bytes(c);
  statistics_.cached += class_bytes(c);
  if (memory_.allocate == host_allocate) ASAN_POISON_MEMORY_REGION(block, class_bytes(c));
}

void Pool::trim() {
  std::lock_guard lock(mutex_);
  trim_locked();
}

void Pool::trim_locked() {
  for (int c = size_class(memory_.smallest_released); c < static_cast<int>(free_.size()); ++c) {
    auto& list = free_[c];
    if (list.empty()) continue;  // class_bytes of the last classes overflows
    for (void* block : list) memory_.release(block);
    statistics_.cached -= class_bytes(c) * list.size();
    list.clear();
  }
}

Pool::Statistics Pool::statistics() const {
  std::lock_guard lock(mutex_);
  return statistics_;
}

Pool& pool(Device device) {
  auto& found = pools()[device.type];
  check(found != nullptr, "memory", "no {} device is available", name_of(device));
  return *found;
}

void install_memory(Device::Type type, DeviceMemory memory) {
  pools()[type] = std::make_unique<Pool>(memory);
}

}  // namespace bonsai
