// The parts of a launch that launch.h and its counterpart for the emulated device share.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace gpu {

// Throws an error that names the call, unless `status` is success.
void check(cudaError_t status, const char* call);

// Checks the status of a launch. If BONSAI_CUDA_SYNC=1, waits for the kernel and throws an error that names
// it if it failed.
void launched(cudaError_t status, const void* kernel);

struct Grid {
  dim3 grid, block;
  std::size_t smem = 0;  // bytes of dynamic shared memory
  cudaStream_t stream = nullptr;
};

// Required for a kernel that uses more than 48 KiB of dynamic shared memory.
template <class... P>
void allow_smem(void (*kernel)(P...), std::size_t bytes) {
  if (bytes > 48 * 1024)
    check(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                               cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
          "cudaFuncSetAttribute");
}

inline unsigned ceil_div(std::int64_t a, std::int64_t b) { return static_cast<unsigned>((a + b - 1) / b); }

}  // namespace gpu
