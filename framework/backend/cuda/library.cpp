// The library's only entry point.
#include "bonsai/framework/backend/cuda/library.h"

#include <exception>
#include <string>

#include "bonsai/framework/backend/cuda/stream.h"

namespace bonsai::cuda {

namespace cuda_f32 { void fill_table(KernelTable& table); }
namespace cuda_f64 { void fill_table(KernelTable& table); }

extern "C" __attribute__((visibility("default"))) const char* bonsai_cuda_open(int64_t layout, int index,
                                                                               const Host& host,
                                                                               Library& library) {
  static std::string problem;
  if (layout != kLayout)
    return "the CUDA library and the program are from different builds; build both again";
  try {
    open_stream(index, host);
  } catch (const std::exception& e) {
    problem = e.what();
    return problem.c_str();
  }
  library.memory = {allocate, release, copy, synchronise, free_bytes};
  library.fill_f32 = cuda_f32::fill_table;
  library.fill_f64 = cuda_f64::fill_table;
  library.use_tf32 = use_tf32;
  library.index_error = index_error();
  describe_device(library.description, sizeof library.description);
  return nullptr;
}

}  // namespace bonsai::cuda
