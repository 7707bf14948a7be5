// A shared library like the backend's: contains emulator and kernels, and has entry points of its own.
#include "bonsai/tests/cuda_emulation/device_array.h"
#include "bonsai/tests/cuda_emulation/faults.h"
#include "bonsai/tests/cuda_emulation/sample.h"

using emulation::test::DeviceArray;

extern "C" {

// Returns the sum of 0 .. n-1, computed by a kernel with barriers.
__attribute__((visibility("default"))) float sum_to(int n) {
  std::vector<float> values;
  for (int i = 0; i < n; ++i) values.push_back(static_cast<float>(i));
  const DeviceArray<float> x(values), out(1);
  gpu::launch({1, 256}, sample::sum_rows, x.data(), out.data(), n);
  return out.values()[0];
}

__attribute__((visibility("default"))) void write_past_the_end() {
  const DeviceArray<float> d(1024);
  gpu::launch({1, 32}, faults::write_at, d.data(), 1024);
}

// Allocates device memory and does not free it.
__attribute__((visibility("default"))) void* keep_memory() {
  void* p = nullptr;
  emulation::test::must(cudaMalloc(&p, 64));
  return p;
}

}  // extern "C"
