#include "framework/backend/backend.h"

#include <utility>

#include "framework/backend/cpu/table.h"
#include "framework/core/error.h"

namespace bonsai {
namespace {

thread_local const KernelTable* replaced[kDeviceTypes][kDTypes] = {};
thread_local Faults cpu_faults;

}  // namespace

const KernelTable& kernels(Device device, DType dtype) {
  if (const KernelTable* table = replaced[device.type][static_cast<int>(dtype)]) return *table;
  check(is_floating(dtype), "kernels", "no arithmetic on {} tensors", name_of(dtype));
  check(device.type == Device::cpu, "kernels", "this build has no {} backend", name_of(device));
  return cpu::table(dtype);
}

ScopedKernels::ScopedKernels(Device device, DType dtype,
                             const std::function<void(KernelTable&)>& change)
    : table_(kernels(device, dtype)),
      slot_(replaced[device.type][static_cast<int>(dtype)]),
      previous_(slot_) {
  change(table_);
  slot_ = &table_;
}

ScopedKernels::~ScopedKernels() { slot_ = previous_; }

Faults* faults(Device) { return &cpu_faults; }

void check_faults(const char* op, Device) {
  if (cpu_faults.count == 0) return;
  const Faults f = std::exchange(cpu_faults, {});
  fail(op, "id {} at position {} is not in [0, {})", f.value, f.position, f.limit);
}

void report_missing_kernel(const char* kernel, Device device, DType dtype) {
  fail(kernel, "no {} kernel for {}", name_of(device), name_of(dtype));
}

const CpuInfo& cpu_info() { return cpu::info(); }

}  // namespace bonsai
