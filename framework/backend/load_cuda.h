// Finds and opens the CUDA library when a CUDA device is first used.
#pragma once

#include <string>

#include "bonsai/framework/backend/cuda/library.h"

namespace bonsai::cuda {

struct Loaded {
  int index = 0;
  std::string problem{};  // why there is no device; empty if there is one
  Library library{};
  KernelTable f32{}, f64{};
};

// Loads the library that BONSAI_CUDA_LIBRARY names, else libbonsai_cuda.so beside the program, else the one
// that the dynamic linker finds. A process uses one CUDA device: the first index that it asks for.
const Loaded& load(int index);

}  // namespace bonsai::cuda
