// Tensors filled by a device's kernels. This header does not include the kernel table: dispatch.h does.
#pragma once

#include "bonsai/framework/core/tensor.h"

namespace bonsai {

// A new tensor whose elements are all `value`, or 0.
Tensor full(const Shape& shape, double value, DType dtype = DType::f32, Device device = {});
Tensor zeros(const Shape& shape, DType dtype = DType::f32, Device device = {});
Tensor zeros_like(const Tensor& x);
// Copies the elements of `from` to `to`, which must have the same shape and dtype and may be on another
// device.
void copy_into(const Tensor& from, Tensor& to);

}  // namespace bonsai
