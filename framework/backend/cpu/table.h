// The CPU's kernel tables: f32 at the highest level that this processor supports, f64 at the lowest.
#pragma once

#include "bonsai/framework/backend/backend.h"

namespace bonsai::cpu {

const KernelTable& table(DType dtype);
const CpuInfo& info();

}  // namespace bonsai::cpu
