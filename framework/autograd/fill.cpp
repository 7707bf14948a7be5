#include "bonsai/framework/autograd/dispatch.h"

namespace bonsai {

Tensor full(const Shape& shape, double value, DType dtype, Device device) {
  if (!is_floating(dtype)) {
    // Throws unless value is an i32.
    const auto one = static_cast<int32_t>(tensor({}, {value}, dtype).item());
    return from<int32_t>(shape, std::vector<int32_t>(static_cast<size_t>(shape.elements()), one), device);
  }
  Tensor t = empty(shape, dtype, device);
  kernels(t).fill(mut(t), value);
  return t;
}

Tensor zeros(const Shape& shape, DType dtype, Device device) { return full(shape, 0, dtype, device); }
Tensor zeros_like(const Tensor& x) { return zeros(x.shape(), x.dtype(), x.device()); }

void copy_into(const Tensor& from, Tensor& to) {
  check(from.shape() == to.shape() && from.dtype() == to.dtype(), "copy_into", "{} does not fit into {}",
        from, to);
  const Device device = from.device().type == Device::cpu ? to.device() : from.device();
  pool(device).memory().copy(to.mutable_data(), from.data(),
                             static_cast<size_t>(from.elements()) * size_of(from.dtype()));
}

}  // namespace bonsai
