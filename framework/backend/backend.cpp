#include "bonsai/framework/backend/backend.h"

#include <utility>

#include "bonsai/framework/backend/cpu/table.h"
#include "bonsai/framework/backend/load_cuda.h"
#include "bonsai/framework/core/error.h"

namespace bonsai {
namespace {

thread_local const KernelTable* replaced[kDeviceTypes][kDTypes] = {};
thread_local IndexError cpu_index_error;

const cuda::Loaded& opened(Device device) {
  const cuda::Loaded& loaded = cuda::load(device.index);
  check(loaded.problem.empty(), "device", "{} cannot be used: {}; bonsai doctor says more", name_of(device),
        loaded.problem);
  check(loaded.index == device.index, "device",
        "cuda:{} cannot be used: cuda:{} is, and a process uses one CUDA device", device.index, loaded.index);
  return loaded;
}

}  // namespace

void open_device(Device device) {
  if (device.type != Device::cpu) opened(device);
}

const KernelTable& kernels(Device device, DType dtype) {
  if (const KernelTable* table = replaced[device.type][static_cast<int>(dtype)]) return *table;
  check(is_floating(dtype), "kernels", "arithmetic on {} tensors is not supported", name_of(dtype));
  if (device.type == Device::cpu) return cpu::table(dtype);
  const cuda::Loaded& loaded = opened(device);
  return dtype == DType::f64 ? loaded.f64 : loaded.f32;
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

IndexError* index_error(Device device) {
  return device.type == Device::cpu ? &cpu_index_error : opened(device).library.index_error;
}

void check_faults(const char* op, Device device) {
  if (device.type != Device::cpu || cpu_index_error.count == 0) return;
  const IndexError f = std::exchange(cpu_index_error, {});
  fail(op, "id {} at position {} is not in [0, {})", f.value, f.position, f.limit);
}

void report_missing_kernel(const char* kernel, Device device, DType dtype) {
  fail(kernel, "no {} kernel for {}", name_of(device), name_of(dtype));
}

const CpuInfo& cpu_info() { return cpu::info(); }

CudaInfo cuda_info() {
  const cuda::Loaded& loaded = cuda::load(0);
  const bool usable = loaded.problem.empty();
  return {usable, usable ? loaded.library.description : loaded.problem};
}

void use_tf32(bool on) {
  const cuda::Loaded& loaded = cuda::load(0);
  if (loaded.problem.empty()) loaded.library.use_tf32(on);
}

}  // namespace bonsai
