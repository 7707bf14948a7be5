// The twin of the product's framework/backend/cuda/launch.h: found first on the include path, it lets a host
// compiler build kernels for the emulated device. Names and meaning are the product's.
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
// The launch's dynamic shared memory, one array a kernel: GPU_DYN_SMEM(float, buffer);
#define GPU_DYN_SMEM(T, name) T* const name = static_cast<T*>(emulation::dynamic_shared())

namespace emulation {

// The arguments of one launch, and the call that every thread makes with them.
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

// Whether a kernel may be given this: pointers lie in device memory, also those inside a struct.
template <class T>
bool check_argument(T& value, int index, const Kernel& kernel) {
  if constexpr (std::is_pointer_v<T>) {
    return check_pointer(static_cast<const void*>(value), index, kernel);
  } else if constexpr (std::is_class_v<T> && !std::is_empty_v<T>) {  // an empty one shares its bytes with another
#if defined(__has_builtin)
#if __has_builtin(__builtin_clear_padding)
    __builtin_clear_padding(&value);  // what is left there by chance is no pointer
    return check_struct(&value, sizeof value, index, kernel);
#endif
#endif
  }
  return true;
}

}  // namespace emulation

namespace gpu {

// Arguments are converted to the kernel's own parameter types; a wrong number of them does not compile.
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
