// Which devices there are, and their kernel tables.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "framework/backend/kernels.h"

namespace bonsai {

// The table of a device and floating dtype. Errors name the device that is missing.
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
Faults* faults(Device device);
// Throws for a fault reported since the last call, once the device can tell: at once on the CPU.
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

}  // namespace bonsai
