// Tensors filled by a device's kernels. This header does not include the kernel table: dispatch.h does.
#pragma once

#include "bonsai/framework/core/tensor.h"

namespace bonsai {

Tensor full(const Shape& shape, double value, DType dtype = DType::f32, Device device = {});
Tensor zeros(const Shape& shape, DType dtype = DType::f32, Device device = {});
Tensor zeros_like(const Tensor& x);
// Writes the elements of one into the other, of the same shape and dtype, from any device to any.
void copy_into(const Tensor& from, Tensor& to);

}  // namespace bonsai
