// Device memory on the CPU. Every allocation ends at an inaccessible page and is filled with a pattern that
// is NaN in any float type; its addresses are never reused. Access past its end and use after free therefore
// fault, and reads of uninitialised memory give NaN. Pinned host memory is ordinary memory whose address
// ranges are recorded.
#include <sys/mman.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <set>

#include "bonsai/tests/cuda_emulation/emulation.h"
#include "bonsai/tests/cuda_emulation/sanitizer.h"

namespace emulation {
namespace {

constexpr size_t kRange = size_t{1} << 38, kPage = 4096, kAlign = 16, kRemembered = 4096;
constexpr std::array<unsigned char, 4> kPattern{0xB1, 0x7F, 0xB1, 0x7F};

struct State {
  uintptr_t low = 0, high = 0, next = 0;  // the reserved address range, and the first address never used
  std::map<uintptr_t, Allocation> live;   // by first page
  std::map<uintptr_t, Allocation> dead;   // the most recently freed ones
  std::deque<uintptr_t> dead_order;
  std::set<uintptr_t> with_slack;  // live allocations that do not end exactly at the inaccessible page
  std::map<uintptr_t, size_t> pinned;
  size_t bytes = 0;
  unsigned number = 0;
  bool open = true;
};
State& state() {
  static State& s = *new State;
  return s;
}

void* pointer(uintptr_t p) { return reinterpret_cast<void*>(p); }
uintptr_t number(const void* p) { return reinterpret_cast<uintptr_t>(p); }

void reserve() {
  State& s = state();
  if (s.low) return;
  void* range = mmap(nullptr, kRange, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) {
    std::fprintf(stderr,
                 "[emulation] cannot reserve 256 GiB of address space; is there a limit (ulimit -v)?\n");
    std::abort();
  }
  s.low = number(range);
  s.high = s.low + kRange;
  s.next = s.low + kPage;
  s.open = !options().host_guard;
}

const Allocation* holder(const std::map<uintptr_t, Allocation>& of, uintptr_t p) {
  auto it = of.upper_bound(p);
  if (it == of.begin()) return nullptr;
  --it;
  return p < it->second.high + kPage ? &it->second : nullptr;
}

// The distance of p from the allocation.
uintptr_t distance(const Allocation& a, uintptr_t p) {
  return p < a.address ? a.address - p : p < a.address + a.bytes ? 0 : p - a.address - a.bytes;
}

// The allocation that contains p or is nearest to it, among the live ones or else the remembered freed ones.
const Allocation* nearest(uintptr_t p, bool& is_live) {
  for (const bool live : {true, false}) {
    const auto& all = live ? state().live : state().dead;
    const Allocation *before = holder(all, p), *behind = holder(all, p + kPage);
    is_live = live;
    if (before && behind) return distance(*before, p) <= distance(*behind, p) ? before : behind;
    if (before || behind) return before ? before : behind;
  }
  return nullptr;
}

bool holds(const Allocation& a, uintptr_t p, size_t bytes) {
  return p >= a.address && bytes <= a.bytes && p - a.address <= a.bytes - bytes;
}

bool is_pattern(const Allocation& a, uintptr_t from, uintptr_t to) {
  for (uintptr_t p = from; p < to; ++p)  // the pattern starts at the first page
    if (*static_cast<const unsigned char*>(pointer(p)) != kPattern[(p - a.low) % kPattern.size()])
      return false;
  return true;
}

// Whether something was written after (or before) an allocation but in its pages. Always false under a
// sanitizer, which detects such writes itself.
bool overwritten_behind(const Allocation& a) {
  return !kAddressSanitizer && !is_pattern(a, a.address + a.bytes, a.high);
}
bool overwritten_before(const Allocation& a) {
  return !kAddressSanitizer && !is_pattern(a, a.low, a.address);
}
void poison_slack(const Allocation& a) {
  const uintptr_t end = a.address + a.bytes;
  for (uintptr_t p = end; p < a.high; ++p)
    *static_cast<unsigned char*>(pointer(p)) = kPattern[(p - a.low) % kPattern.size()];
}

void open_all(bool open) {
  State& s = state();
  if (!options().host_guard || s.open == open) return;
  s.open = open;
  for (const auto& [low, a] : s.live)
    mprotect(pointer(low), a.high - low, open ? PROT_READ | PROT_WRITE : PROT_NONE);
}

void remember(const Allocation& a) {
  State& s = state();
  s.dead[a.low] = a;
  s.dead_order.push_back(a.low);
  if (s.dead_order.size() <= kRemembered) return;
  s.dead.erase(s.dead_order.front());
  s.dead_order.pop_front();
}

}  // namespace

bool in_device_range(uintptr_t p) { return p >= state().low && p < state().high; }
size_t bytes_allocated() { return state().bytes; }

void poison(uintptr_t p, size_t bytes) {
  auto* to = static_cast<unsigned char*>(pointer(p));
  uint64_t word = 0;
  std::memcpy(&word, kPattern.data(), 4);
  word |= word << 32;
  size_t i = 0;
  for (; i + 8 <= bytes; i += 8) std::memcpy(to + i, &word, 8);
  for (; i < bytes; ++i) to[i] = kPattern[i % kPattern.size()];
}

std::string describe(uintptr_t p) {
  if (p < kPage) return "a null pointer";
  if (is_pinned(pointer(p))) return "pinned host memory";
  if (!in_device_range(p)) return "host memory";
  bool is_live = false;
  const Allocation* a = nearest(p, is_live);
  if (!a) return "a device address where nothing is allocated";
  const int64_t at = static_cast<int64_t>(p - a->address);
  return std::string(is_live ? "" : "freed ") + "device allocation #" + std::to_string(a->number) + " of " +
         std::to_string(a->bytes) + " bytes, at byte " + std::to_string(at) +
         (at < 0 ? " (before it)" : at >= static_cast<int64_t>(a->bytes) ? " (past its end)" : "");
}

cudaError_t allocate(void** out, size_t bytes) {
  if (!out) return refuse(cudaErrorInvalidValue, "cudaMalloc: nowhere to put the address");
  *out = nullptr;
  if (bytes == 0) return cudaSuccess;
  reserve();
  State& s = state();
  const size_t used = (bytes + kAlign - 1) / kAlign * kAlign, span = (used + kPage - 1) / kPage * kPage;
  if (bytes > options().memory || s.bytes > options().memory - bytes || s.next + span + kPage > s.high)
    return set_last(cudaErrorMemoryAllocation);
  Allocation a;
  a.low = s.next;
  a.high = a.low + span;
  a.address = a.high - used;
  a.bytes = bytes;
  if (mprotect(pointer(a.low), span, PROT_READ | PROT_WRITE) != 0) return set_last(cudaErrorMemoryAllocation);
  a.number = ++s.number;
  s.next = a.high + kPage;
  poison(a.low, span);
  forbid(pointer(a.low), a.address - a.low);
  forbid(pointer(a.address + bytes), used - bytes);
  s.live[a.low] = a;
  if (used != bytes) s.with_slack.insert(a.low);
  s.bytes += bytes;
  catch_faults();
  if (!s.open) mprotect(pointer(a.low), span, PROT_NONE);
  *out = pointer(a.address);
  return cudaSuccess;
}

cudaError_t release(void* p) {
  if (!p) return cudaSuccess;
  State& s = state();
  const Allocation* found = holder(s.live, number(p));
  if (!found || found->address != number(p))
    return refuse(cudaErrorInvalidValue,
                  "cudaFree: " + describe(number(p)) + " is not the start of a live allocation");
  const Open open;
  const Allocation a = *found;
  allow(pointer(a.low), a.high - a.low);
  if (overwritten_behind(a)) report("cudaFree: bytes just past " + describe(a.address) + " were overwritten");
  if (overwritten_before(a)) report("cudaFree: bytes before " + describe(a.address) + " were overwritten");
  madvise(pointer(a.low), a.high - a.low, MADV_DONTNEED);
  mprotect(pointer(a.low), a.high - a.low, PROT_NONE);
  s.bytes -= a.bytes;
  s.with_slack.erase(a.low);
  s.live.erase(a.low);
  remember(a);
  release_faults();
  return cudaSuccess;
}

std::string damage() {
  for (const uintptr_t low : state().with_slack) {
    const Allocation& a = state().live.at(low);
    if (!overwritten_behind(a)) continue;
    poison_slack(a);  // report only once
    return "bytes just past " + describe(a.address) + " were overwritten";
  }
  return "";
}

bool is_device(const void* p, size_t bytes) {
  const Allocation* a = holder(state().live, number(p));
  return a && holds(*a, number(p), bytes);
}

bool check_device(const void* p, size_t bytes, const char* what) {
  if (bytes == 0 || is_device(p, bytes)) return true;
  report(std::string(what) + ": expected " + std::to_string(bytes) + " bytes of device memory, found " +
         describe(number(p)));
  return false;
}

bool check_host(const void* p, size_t bytes, const char* what) {
  if (bytes == 0 || (p && !in_device_range(number(p)))) return true;
  report(std::string(what) + ": expected " + std::to_string(bytes) + " bytes of host memory, found " +
         describe(number(p)));
  return false;
}

bool check_pointer(const void* p, int index, const Kernel& kernel) {
  if (!p || is_device(p, 0)) return true;
  const Call call("launch", kernel.from);
  report("launch of " + name_of(kernel.function) + ": pointer argument " + std::to_string(index) + " is " +
         describe(number(p)));
  return false;
}

// Treats a word whose value is an address of mapped host memory as a pointer. (Wrong device pointers fault
// when they are used.)
bool check_struct(const void* bytes, size_t size, int index, const Kernel& kernel) {
  constexpr uintptr_t kLowest = uintptr_t{1} << 44, kHighest = (uintptr_t{1} << 47) - kPage;
  for (size_t at = 0; at + sizeof(uintptr_t) <= size; at += sizeof(uintptr_t)) {
    uintptr_t word = 0;
    std::memcpy(&word, static_cast<const char*>(bytes) + at, sizeof word);
    if (word < kLowest || word > kHighest || in_device_range(word)) continue;
    unsigned char resident = 0;
    if (mincore(pointer(word / kPage * kPage), kPage, &resident) != 0) continue;  // not mapped
    const Call call("launch", kernel.from);
    report("launch of " + name_of(kernel.function) + ": argument " + std::to_string(index) +
           " holds a pointer at byte " + std::to_string(at) + " that is " + describe(word));
    return false;
  }
  return true;
}

cudaError_t allocate_pinned(void** out, size_t bytes) {
  *out = bytes ? std::malloc(bytes) : nullptr;
  if (bytes && !*out) return set_last(cudaErrorMemoryAllocation);
  if (bytes) state().pinned[number(*out)] = bytes;
  return cudaSuccess;
}

cudaError_t release_pinned(void* p) {
  if (!p) return cudaSuccess;
  if (state().pinned.erase(number(p)) == 0)
    return refuse(cudaErrorInvalidValue,
                  "cudaFreeHost: " + describe(number(p)) + " is not the start of pinned memory");
  std::free(p);
  return cudaSuccess;
}

bool is_pinned(const void* p) {
  auto it = state().pinned.upper_bound(number(p));
  if (it == state().pinned.begin()) return false;
  --it;
  return number(p) < it->first + it->second;
}

Open::Open() : was_(state().open) { open_all(true); }
Open::~Open() { open_all(was_); }

}  // namespace emulation
