// From tensors to kernels: the kernel table for a tensor's device and dtype.
#pragma once

#include "bonsai/framework/autograd/fill.h"
#include "bonsai/framework/backend/backend.h"

namespace bonsai {

inline const KernelTable& kernels(const Tensor& x) { return kernels(x.device(), x.dtype()); }

}  // namespace bonsai
