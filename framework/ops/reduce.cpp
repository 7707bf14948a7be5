// Reductions over one axis or all.
#include "bonsai/framework/autograd/record.h"
#include "bonsai/framework/ops/axes.h"
#include "bonsai/framework/ops/broadcast.h"
#include "bonsai/framework/ops/ops.h"

namespace bonsai {
namespace {

struct Reduction {
  Shape from;
  int axis;
  double factor;
};

// sum and mean: y = factor * sum(x), and dx = factor * dy, broadcast.
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
  return total("sum", x, x.checked_axis("sum", axis), keep, 1);
}

Tensor sum(const Tensor& x) {
  check_floating("sum", x);
  return sum(reshape(x, {x.elements()}), 0);
}

Tensor mean(const Tensor& x, int axis, bool keep) {
  check_floating("mean", x);
  const int a = x.checked_axis("mean", axis);
  check(x.size(a) > 0, "mean", "{} has no elements along axis {}; their mean is not defined", x, a);
  return total("mean", x, a, keep, 1.0 / static_cast<double>(x.size(a)));
}

Tensor mean(const Tensor& x) {
  check_floating("mean", x);
  return mean(reshape(x, {x.elements()}), 0);
}

Tensor max(const Tensor& x, int axis, bool keep) {
  check_floating("max", x);
  const int a = x.checked_axis("max", axis);
  check(x.size(a) > 0, "max", "{} has no elements along axis {}; their maximum is not defined", x, a);
  Tensor y = empty(reduced(x.shape(), a, keep), x.dtype(), x.device());
  kernels(x).max(around(x, a), mut(y));
  return record("max", {x}, y, {x, y}, a, [](Tensor dy, Saved& s, Sink&, int axis) -> Grads {
    Tensor dx = empty_like(s[0]);
    kernels(dy).max_backward(around(s[0], axis), view(s[1]), view(dy), mut(dx));
    return {dx};
  });
}

Tensor argmax(const Tensor& x, int axis, bool keep) {
  check_floating("argmax", x);
  const int a = x.checked_axis("argmax", axis);
  check(x.size(a) > 0, "argmax", "{} has no elements along axis {}; their maximum is not defined", x, a);
  Tensor y = empty(reduced(x.shape(), a, keep), DType::i32, x.device());
  kernels(x).argmax(around(x, a), mut(y));
  return y;
}

// The gradient is the cumulative sum of dy from the end of the axis.
Tensor cumsum(const Tensor& x, int axis) {
  check_floating("cumsum", x);
  const int a = x.checked_axis("cumsum", axis);
  Tensor y = empty_like(x);
  kernels(x).cumulative_sum(around(x, a), false, mut(y));
  return record("cumsum", {x}, y, {}, a, [](Tensor dy, Saved&, Sink&, int axis) -> Grads {
    Tensor dx = empty_like(dy);
    kernels(dy).cumulative_sum(around(dy, axis), true, mut(dx));
    return {dx};
  });
}

// Subtracting the first element before taking the mean keeps digits if the mean is large. The variance does
// not depend on the value subtracted, which therefore needs no gradient.
Tensor variance(const Tensor& x, int axis, bool keep, int64_t correction) {
  check_floating("variance", x);
  const int a = x.checked_axis("variance", axis);
  check(correction >= 0 && x.size(a) > correction, "variance",
        "axis {} of {} has {} elements; their number less the correction {} must be above 0", a, x, x.size(a),
        correction);
  const Tensor shifted = sub(x, slice(x.detach(), a, 0, 1));
  const Tensor d = sub(shifted, mean(shifted, a, true));
  return scale(sum(mul(d, d), a, keep), 1.0 / static_cast<double>(x.size(a) - correction));
}

}  // namespace bonsai
