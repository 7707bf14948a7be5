// Informs the address sanitizer about memory that must not be accessed and about switches between stacks.
#pragma once

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#define EMULATION_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EMULATION_ASAN 1
#endif
#endif

#ifdef EMULATION_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace emulation {

#ifdef EMULATION_ASAN
inline constexpr bool kAddressSanitizer = true;
inline void forbid(const void* p, std::size_t bytes) { __asan_poison_memory_region(p, bytes); }
inline void allow(const void* p, std::size_t bytes) { __asan_unpoison_memory_region(p, bytes); }
inline void before_switch(void** keep, const void* bottom, std::size_t bytes) {
  __sanitizer_start_switch_fiber(keep, bottom, bytes);
}
inline void after_switch(void* kept, const void** old_bottom, std::size_t* old_bytes) {
  __sanitizer_finish_switch_fiber(kept, old_bottom, old_bytes);
}
#else
inline constexpr bool kAddressSanitizer = false;
inline void forbid(const void*, std::size_t) {}
inline void allow(const void*, std::size_t) {}
inline void before_switch(void**, const void*, std::size_t) {}
inline void after_switch(void*, const void**, std::size_t*) {}
#endif

}  // namespace emulation
