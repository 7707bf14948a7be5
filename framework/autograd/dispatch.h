// From tensors to kernels: the table of a tensor's device and dtype, and the tensors made by kernels.
#pragma once

#include "bonsai/framework/backend/backend.h"
#include "bonsai/framework/core/tensor.h"

namespace bonsai {

inline const KernelTable& kernels(const Tensor& x) { return kernels(x.device(), x.dtype()); }

Tensor full(const Shape& shape, double value, DType dtype = DType::f32, Device device = {});
Tensor zeros(const Shape& shape, DType dtype = DType::f32, Device device = {});
Tensor zeros_like(const Tensor& x);
// Writes the elements of one into the other, of the same shape and dtype, from any device to any.
void copy_into(const Tensor& from, Tensor& to);

}  // namespace bonsai
