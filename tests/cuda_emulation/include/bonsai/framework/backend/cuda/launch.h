// Replaces framework/backend/cuda/launch.h: it comes first on the include path and lets a host compiler build
// kernels for the emulated device. Names and semantics are the same.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <tuple>
#include <type_traits>
#include <utility>

#include "bonsai/framework/backend/cuda/emulated_device.h"
#include "bonsai/framework/backend/cuda/grid.h"

// A static array in shared memory: GPU_SHARED(float, tile, [32][33]);
#define GPU_SHARED(T, name, ...)                                                \
  using name##_shared_t = T __VA_ARGS__;                                        \
  name##_shared_t& name = *static_cast<name##_shared_t*>(emulation::shared_array( \
      [] { static char key; return &key; }(), sizeof(name##_shared_t), alignof(name##_shared_t)))
// The launch's dynamic shared memory, one array per kernel: GPU_DYN_SMEM(float, buffer);
#define GPU_DYN_SMEM(T, name) T* const name = static_cast<T*>(emulation::dynamic_shared())

namespace emulation {

// The arguments of a launch, and the call that every thread makes with them.
template <class... P>
struct Arguments {
  void (*kernel)(P...);
  std::tuple<std::remove_cv_t<P>...> values;
  static void run(void* self) {
    auto& a = *static_cast<Arguments*>(self);
    std::apply(a.kernel, a.values);
  }
  static void* copy(const void* self) { return new Arguments(*static_cast<const Arguments*>(self)); }
  static void drop(void* self) { delete static_cast<Arguments*>(self); }
};

// Checks an argument of a kernel: pointers, including those in structs, must point to device memory.
template <class T>
bool check_argument(T& value, int index, const Kernel& kernel) {
  if constexpr (std::is_pointer_v<T>) {
    return check_pointer(static_cast<const void*>(value), index, kernel);
  } else if constexpr (std::is_class_v<T> && !std::is_empty_v<T>) {  // an empty class may share its byte
#if defined(__has_builtin)
#if __has_builtin(__builtin_clear_padding)
    __builtin_clear_padding(&value);  // random bytes in the padding could look like a pointer
    return check_struct(&value, sizeof value, index, kernel);
#endif
#endif
  }
  return true;
}

}  // namespace emulation

namespace gpu {

// Converts the arguments to the kernel's parameter types. A wrong number of arguments does not compile.
template <class... P, class... A>
[[gnu::noinline]] void launch(const Grid& g, void (*kernel)(P...), A&&... args) {
  static_assert(sizeof...(P) == sizeof...(A), "the number of arguments");
  static_assert((std::is_trivially_copyable_v<P> && ...), "parameters are copied bytewise to the device");
  static_assert((!std::is_reference_v<P> && ...), "a parameter cannot be a reference to host memory");
  static_assert((0 + ... + sizeof(P)) <= 4096, "the space for parameters");
  using Arguments = emulation::Arguments<P...>;
  Arguments arguments{kernel, {static_cast<P>(std::forward<A>(args))...}};
  const emulation::Kernel emulated{reinterpret_cast<const void*>(kernel),
                                   __builtin_return_address(0),
                                   &Arguments::run,
                                   &Arguments::copy,
                                   &Arguments::drop,
                                   &arguments};
  int index = 0;
  bool ok = true;
  std::apply([&](auto&... a) { ((ok = emulation::check_argument(a, index++, emulated) && ok), ...); },
             arguments.values);
  launched(ok ? emulation::launch({g.grid, g.block, g.smem, g.stream}, emulated) : cudaErrorInvalidValue,
           emulated.function);
}

}  // namespace gpu
