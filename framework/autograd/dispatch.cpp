#include "framework/autograd/dispatch.h"

namespace bonsai {

Tensor full(const Shape& shape, double value, DType dtype, Device device) {
  if (!is_floating(dtype)) {
    const std::vector<int32_t> values(static_cast<size_t>(shape.elements()),
                                      static_cast<int32_t>(value));
    return from<int32_t>(shape, values, device);
  }
  Tensor t = empty(shape, dtype, device);
  kernels(t).fill(mut(t), value);
  return t;
}

Tensor zeros(const Shape& shape, DType dtype, Device device) { return full(shape, 0, dtype, device); }
Tensor zeros_like(const Tensor& x) { return zeros(x.shape(), x.dtype(), x.device()); }

void copy_into(const Tensor& from, Tensor& to) { kernels(from).scale(view(from), 1, mut(to)); }

}  // namespace bonsai
