// The devices and their kernel tables.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bonsai/framework/backend/kernels.h"

namespace bonsai {

// Opens a device; throws an Error that says what is missing. Does nothing for the CPU.
void open_device(Device device);

// The kernel table of a device and floating dtype. Opens a CUDA device that is not open yet.
const KernelTable& kernels(Device device, DType dtype);

// Replaces this thread's table, during its lifetime, with a copy that `change` has modified: for profiles,
// and for tests that plant a fault.
class ScopedKernels {
 public:
  ScopedKernels(Device device, DType dtype, const std::function<void(KernelTable&)>& change);
  ~ScopedKernels();
  ScopedKernels(const ScopedKernels&) = delete;
  ScopedKernels& operator=(const ScopedKernels&) = delete;

 private:
  KernelTable table_;
  const KernelTable*& slot_;
  const KernelTable* previous_;
};

// Where the kernels of this device report ids out of range.
IndexError* index_error(Device device);
// Throws if an id out of range was reported since the last call. Checks only the CPU: a CUDA device's error
// is thrown when a value is next read from the device.
void check_faults(const char* op, Device device);

// What was chosen at startup, for `doctor` and bug reports.
struct CpuInfo {
  std::string level;         // instruction-set level of the f32 kernels: v2, v3, v4 or plain
  std::vector<std::string> levels;    // all levels of this build
  std::vector<std::string> runnable;  // those of them that this processor supports
  std::string blas;      // OpenBLAS's configuration, or "own kernels (...)" and why OpenBLAS is not used
  std::string products;  // which matrix products use Bonsai's micro-kernels and which use BLAS
};
const CpuInfo& cpu_info();

struct CudaInfo {
  bool usable;
  std::string text;  // a description of the device, or why it cannot be used
};
CudaInfo cuda_info();
// Whether f32 matrix products on a CUDA device may round their operands to TF32, which has a 10-bit mantissa.
// Off by default.
void use_tf32(bool on);

}  // namespace bonsai
