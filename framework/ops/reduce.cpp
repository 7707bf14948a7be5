// Reductions over one axis or all.
#include "bonsai/framework/autograd/record.h"
#include "bonsai/framework/ops/broadcast.h"
#include "bonsai/framework/ops/ops.h"

namespace bonsai {
namespace {

// x as (outer, n, inner) around an axis.
Shape around(const Shape& x, int axis) {
  Shape s{1, x.dim[axis], 1};
  for (int i = 0; i < axis; ++i) s.dim[0] *= x.dim[i];
  for (int i = axis + 1; i < x.rank; ++i) s.dim[2] *= x.dim[i];
  return s;
}

View around(const Tensor& x, int axis) {
  View v = view(x);
  v.shape = around(x.shape(), axis);
  return v;
}

struct Reduction {
  Shape from;
  int axis;
  double factor;
};

// sum and mean: y = factor * sum, whose gradient is dy stretched back.
Tensor total(const char* op, const Tensor& x, int axis, bool keep, double factor) {
  Tensor y = empty(reduced(x.shape(), axis, keep), x.dtype(), x.device());
  kernels(x).sum(around(x, axis), factor, mut(y));
  return record(op, {x}, y, {}, Reduction{x.shape(), axis, factor},
                [](Tensor dy, Saved&, Sink&, Reduction r) -> Grads {
                  Tensor dx = empty(r.from, dy.dtype(), dy.device());
                  View d = view(dy);
                  d.shape = reduced(r.from, r.axis, true);
                  kernels(dy).expand(d, r.factor, mut(dx));
                  return {dx};
                });
}

}  // namespace

Tensor sum(const Tensor& x, int axis, bool keep) {
  check_floating("sum", x);
  return total("sum", x, checked_axis("sum", x.shape(), axis), keep, 1);
}

Tensor sum(const Tensor& x) {
  check_floating("sum", x);
  return sum(reshape(x, {x.elements()}), 0);
}

Tensor mean(const Tensor& x, int axis, bool keep) {
  check_floating("mean", x);
  const int a = checked_axis("mean", x.shape(), axis);
  check(x.size(a) > 0, "mean", "{} has no elements along axis {}; their mean is not defined", x, a);
  return total("mean", x, a, keep, 1.0 / static_cast<double>(x.size(a)));
}

Tensor mean(const Tensor& x) {
  check_floating("mean", x);
  return mean(reshape(x, {x.elements()}), 0);
}

Tensor max(const Tensor& x, int axis, bool keep) {
  check_floating("max", x);
  const int a = checked_axis("max", x.shape(), axis);
  check(x.size(a) > 0, "max", "{} has no elements along axis {}; their maximum is not defined", x, a);
  Tensor y = empty(reduced(x.shape(), a, keep), x.dtype(), x.device());
  kernels(x).max(around(x, a), mut(y));
  return record("max", {x}, y, {x, y}, a, [](Tensor dy, Saved& s, Sink&, int axis) -> Grads {
    Tensor dx = empty_like(s[0]);
    kernels(dy).max_backward(around(s[0], axis), view(s[1]), view(dy), mut(dx));
    return {dx};
  });
}

}  // namespace bonsai
