// Finds and opens the CUDA library, when a CUDA device is first asked for.
#pragma once

#include <string>

#include "bonsai/framework/backend/cuda/library.h"

namespace bonsai::cuda {

struct Loaded {
  int index = 0;
  std::string problem{};  // why there is no device; empty where there is one
  Library library{};
  KernelTable f32{}, f64{};
};

// The library that BONSAI_CUDA_LIBRARY names, or libbonsai_cuda.so beside the program, or one that the system finds.
// A process has one CUDA device: the first index that is asked for.
const Loaded& load(int index);

}  // namespace bonsai::cuda
