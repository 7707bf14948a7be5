// What a launch is told, whoever launches: nvcc's launch.h, or its twin for the emulated device.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace gpu {

// Ends in an error that names the call, unless it was a success.
void check(cudaError_t status, const char* call);

// What a launch has come to. With BONSAI_CUDA_SYNC=1 waits for the kernel, and names it in the error if it failed.
void launched(cudaError_t status, const void* kernel);

struct Grid {
  dim3 grid, block;
  std::size_t smem = 0;  // bytes of dynamic shared memory
  cudaStream_t stream = nullptr;
};

// For a kernel that takes more than 48 KiB of dynamic shared memory.
template <class... P>
void allow_smem(void (*kernel)(P...), std::size_t bytes) {
  if (bytes > 48 * 1024)
    check(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(bytes)),
          "cudaFuncSetAttribute");
}

inline unsigned ceil_div(std::int64_t a, std::int64_t b) { return static_cast<unsigned>((a + b - 1) / b); }

}  // namespace gpu
