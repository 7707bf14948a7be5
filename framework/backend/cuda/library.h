// The interface between the program and the CUDA library: one C function. The library is loaded when a CUDA
// device is first used, so a run on the CPU does not pay for it.
#pragma once

#include <cstdint>

#include "bonsai/framework/backend/kernels.h"
#include "bonsai/framework/core/memory.h"

namespace bonsai::cuda {

// What the program provides.
struct Host {
  void (*fail)(const char* where, const char* message);  // throws
  void* (*take)(size_t bytes);  // from the device's pool
  void (*give_back)(void* block, size_t bytes);
};

// What the library provides.
struct Library {
  DeviceMemory memory;
  void (*fill_f32)(KernelTable& table);
  void (*fill_f64)(KernelTable& table);
  void (*use_tf32)(bool on);  // for f32 matrix products
  IndexError* index_error;    // in the device's memory
  char description[160];      // the device's name, memory and versions
};

// Derived from the sizes of the shared structs, to reject a library from another build.
inline constexpr int64_t kLayout = sizeof(KernelTable) * 1'000'000 + sizeof(kernel::Attention) * 1000 +
                                   sizeof(kernel::Gemm) + sizeof(kernel::StepState) + sizeof(Library);

// Returns null if the device is open; otherwise a sentence that says what is missing.
using Open = const char* (*)(int64_t layout, int index, const Host& host, Library& library);
inline constexpr const char* kOpen = "bonsai_cuda_open";

}  // namespace bonsai::cuda
