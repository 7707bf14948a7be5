// How kernels are launched. This is the only header with syntax that only nvcc knows. Tests put a replacement
// earlier on the include path, with which a host compiler builds the same kernels for the CPU.
#pragma once

#include <utility>

#include "bonsai/framework/backend/cuda/grid.h"

// A static array in shared memory: GPU_SHARED(float, tile, [32][33]);
#define GPU_SHARED(T, name, ...) __shared__ T name __VA_ARGS__
// The launch's dynamic shared memory, one array per kernel: GPU_DYN_SMEM(float, buffer);
#define GPU_DYN_SMEM(T, name)                                   \
  extern __shared__ __align__(16) unsigned char gpu_dyn_smem_[]; \
  T* const name = reinterpret_cast<T*>(gpu_dyn_smem_)

namespace gpu {

// Converts the arguments to the kernel's parameter types. A wrong number of arguments does not compile.
template <class... P, class... A>
void launch(const Grid& g, void (*kernel)(P...), A&&... args) {
  static_assert(sizeof...(P) == sizeof...(A), "the number of arguments");
  cudaLaunchConfig_t config{};
  config.gridDim = g.grid;
  config.blockDim = g.block;
  config.dynamicSmemBytes = g.smem;
  config.stream = g.stream;
  launched(cudaLaunchKernelEx(&config, kernel, static_cast<P>(std::forward<A>(args))...),
           reinterpret_cast<const void*>(kernel));
}

}  // namespace gpu
