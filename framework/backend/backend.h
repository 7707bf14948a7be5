// Which devices there are, and their kernel tables.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bonsai/framework/backend/kernels.h"

namespace bonsai {

// Makes a device ready; an error says what is missing. On the CPU there is nothing to do.
void open_device(Device device);

// The table of a device and floating dtype. A CUDA device is opened where it was not.
const KernelTable& kernels(Device device, DType dtype);

// While it lives, this thread's table has what `change` put there: for tests that plant a fault.
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

// Where kernels on this device report ids out of range.
IndexError* index_error(Device device);
// Throws for a fault reported since the last call, once the device can tell: at once on the CPU, with the next value
// that is read from a CUDA device.
void check_faults(const char* op, Device device);

// What was chosen at start, for `doctor` and bug reports.
struct CpuInfo {
  std::string level;         // instruction-set level of the f32 kernels: v2, v3, v4 or plain
  std::vector<std::string> levels;  // those this program holds
  std::vector<std::string> runnable;  // and of these, those that this processor runs
  std::string blas;          // OpenBLAS's own words, or "own (...)" when its self-check failed
  std::string products;      // who multiplies matrices
};
const CpuInfo& cpu_info();

struct CudaInfo {
  bool usable;
  std::string text;  // what the device is, or why there is none
};
CudaInfo cuda_info();
// Whether f32 products on a CUDA device may round their operands to TF32's 10 bits. At first they may not.
void use_tf32(bool on);

}  // namespace bonsai
