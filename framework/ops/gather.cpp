// Gathers elements along an axis by index, and adds values at indices.
#include "bonsai/framework/autograd/record.h"
#include "bonsai/framework/ops/axes.h"
#include "bonsai/framework/ops/broadcast.h"
#include "bonsai/framework/ops/ops.h"

namespace bonsai {
namespace {

int checked_index(const char* op, const Tensor& x, int axis, const Tensor& index) {
  check_floating(op, x);
  const int a = x.checked_axis(op, axis);
  check(index && index.dtype() == DType::i32, op, "the index must be i32, got {}", index);
  Shape sizes = x.shape();
  if (index.rank() == x.rank()) sizes.dim[a] = index.size(a);
  check(index.shape() == sizes, op, "the index must have the sizes of x away from axis {}: x {}, index {}", a,
        x, index);
  return a;
}

void add_at(const Tensor& index, const Tensor& y, int axis, Tensor& x) {
  MutView to = mut(x);
  to.shape = around(x.shape(), axis);
  kernels(y).scatter_add(around(index, axis), around(y, axis), to, index_error(y.device()));
}

Tensor gathered(const char* op, const Tensor& x, int axis, const Tensor& index) {
  Tensor y = empty(index.shape(), x.dtype(), x.device());
  kernels(x).gather(around(x, axis), around(index, axis), mut(y), index_error(x.device()));
  check_faults(op, x.device());
  return y;
}

}  // namespace

// The gradient is scattered into the running gradient.
Tensor gather(const Tensor& x, int axis, const Tensor& index) {
  const int a = checked_index("gather", x, axis, index);
  return record("gather", {x}, gathered("gather", x, a, index), {index}, a,
                [](Tensor dy, Saved& s, Sink& sink, int axis) -> Grads {
                  auto dx = sink.into(0);
                  if (!dx.add) kernels(dy).fill(mut(dx.grad), 0);
                  add_at(s[0], dy, axis, dx.grad);
                  return {};
                });
}

Tensor scatter_add(const Tensor& x, int axis, const Tensor& index, const Tensor& values) {
  const int a = checked_index("scatter_add", x, axis, index);
  check_alike("scatter_add", x, values);
  check(values.shape() == index.shape(), "scatter_add", "each index needs one value: index {}, values {}",
        index, values);
  Tensor y = x.copy();
  add_at(index, values, a, y);
  check_faults("scatter_add", x.device());
  return record("scatter_add", {x, values}, y, {index}, a, [](Tensor dy, Saved& s, Sink&, int axis) -> Grads {
    return {dy, s.needs(1) ? gathered("scatter_add", dy, axis, s[0]) : Tensor()};
  });
}

}  // namespace bonsai
