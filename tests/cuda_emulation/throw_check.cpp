// Replaces the error checks of the backend's library in tests without that library: they throw.
#include <stdexcept>
#include <string>

#include "bonsai/framework/backend/cuda/launch.h"

namespace gpu {

void check(cudaError_t status, const char* call) {
  if (status != cudaSuccess) throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(status));
}
void launched(cudaError_t status, const void*) { check(status, "a kernel's launch"); }

}  // namespace gpu
