// Arithmetic and selection with broadcasting.
#include "bonsai/framework/autograd/record.h"
#include "bonsai/framework/backend/math.h"
#include "bonsai/framework/ops/axes.h"
#include "bonsai/framework/ops/broadcast.h"
#include "bonsai/framework/ops/ops.h"

namespace bonsai {
namespace {

struct Shapes {
  Shape a, b;
};

using BinaryKernel = Kernel<void(View, View, MutView)>;

Tensor apply(const BinaryKernel& kernel, const Tensor& a, const Tensor& b, const Shape& shape) {
  Tensor y = empty(shape, a.dtype(), a.device());
  kernel(view(a), view(b), mut(y));
  return y;
}

Tensor apply(const char* op, const BinaryKernel KernelTable::*kernel, const Tensor& a, const Tensor& b) {
  check_alike(op, a, b);
  return apply(kernels(a).*kernel, a, b, broadcast(op, a.shape(), b.shape()));
}

Tensor scaled(const Tensor& x, double factor) {
  Tensor y = empty_like(x);
  kernels(x).scale(view(x), factor, mut(y));
  return y;
}

using kernel::Comparison;

Tensor compared(const char* op, const Tensor& a, Comparison holds, const Tensor& b) {
  check_alike(op, a, b);
  Tensor y = empty(broadcast(op, a.shape(), b.shape()), DType::i32, a.device());
  kernels(a).compare(view(a), view(b), holds, mut(y));
  return y;
}

// The gradient goes to the operand that is the result; equal operands get half of it each.
template <bool kLargest>
Tensor extremum(const char* op, const BinaryKernel KernelTable::*kernel, const Tensor& a, const Tensor& b) {
  return record(op, {a, b}, apply(op, kernel, a, b), {a, b}, NoArgs{},
                [](Tensor dy, Saved& s, Sink&, NoArgs) -> Grads {
                  const Tensor half = scaled(dy, 0.5), nothing = zeros({}, dy.dtype(), dy.device());
                  const Tensor ties = eq(s[0], s[1]);
                  Grads grads(2);
                  for (int i = 0; i < 2; ++i) {
                    if (!s.needs(i)) continue;
                    const Tensor &own = s[i], &other = s[1 - i];
                    const Tensor wins = kLargest ? gt(own, other) : lt(own, other);
                    Tensor shared = empty_like(dy), d = empty_like(dy);
                    kernels(dy).where(view(ties), view(half), view(nothing), mut(shared));
                    kernels(dy).where(view(wins), view(dy), view(shared), mut(d));
                    grads[i] = sum_to(d, own.shape());
                  }
                  return grads;
                });
}

}  // namespace

Tensor add(const Tensor& a, const Tensor& b) {
  return record("add", {a, b}, apply("add", &KernelTable::add, a, b), {}, Shapes{a.shape(), b.shape()},
                [](Tensor dy, Saved& s, Sink&, Shapes to) -> Grads {
                  return {s.needs(0) ? sum_to(dy, to.a) : Tensor(), s.needs(1) ? sum_to(dy, to.b) : Tensor()};
                });
}

Tensor sub(const Tensor& a, const Tensor& b) {
  return record("sub", {a, b}, apply("sub", &KernelTable::sub, a, b), {}, Shapes{a.shape(), b.shape()},
                [](Tensor dy, Saved& s, Sink&, Shapes to) -> Grads {
                  return {s.needs(0) ? sum_to(dy, to.a) : Tensor(),
                          s.needs(1) ? scaled(sum_to(dy, to.b), -1) : Tensor()};
                });
}

Tensor mul(const Tensor& a, const Tensor& b) {
  return record("mul", {a, b}, apply("mul", &KernelTable::mul, a, b), {a, b}, NoArgs{},
                [](Tensor dy, Saved& s, Sink&, NoArgs) -> Grads {
                  Grads grads(2);
                  for (int i = 0; i < 2; ++i)
                    if (s.needs(i))
                      grads[i] = sum_to(apply(kernels(dy).mul, dy, s[1 - i], dy.shape()), s[i].shape());
                  return grads;
                });
}

// da = dy / b, db = -dy / b * y
Tensor div(const Tensor& a, const Tensor& b) {
  Tensor y = apply("div", &KernelTable::div, a, b);
  return record("div", {a, b}, y, {b, y}, Shapes{a.shape(), b.shape()},
                [](Tensor dy, Saved& s, Sink&, Shapes to) -> Grads {
                  const Tensor da = apply(kernels(dy).div, dy, s[0], dy.shape());
                  Grads grads(2);
                  if (s.needs(0)) grads[0] = sum_to(da, to.a);
                  if (s.needs(1))
                    grads[1] = scaled(sum_to(apply(kernels(dy).mul, da, s[1], dy.shape()), to.b), -1);
                  return grads;
                });
}

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  check_alike("where", a, b);
  check(condition && condition.dtype() == DType::i32, "where", "the condition must be i32, got {}",
        condition);
  const Shape shape = broadcast("where", condition.shape(), broadcast("where", a.shape(), b.shape()));
  Tensor y = empty(shape, a.dtype(), a.device());
  kernels(a).where(view(condition), view(a), view(b), mut(y));
  return record("where", {a, b}, y, {condition}, Shapes{a.shape(), b.shape()},
                [](Tensor dy, Saved& s, Sink&, Shapes to) -> Grads {
                  const Tensor nothing = zeros({}, dy.dtype(), dy.device());
                  Grads grads(2);
                  for (int i = 0; i < 2; ++i) {
                    if (!s.needs(i)) continue;
                    Tensor d = empty_like(dy);
                    kernels(dy).where(view(s[0]), view(i == 0 ? dy : nothing), view(i == 0 ? nothing : dy),
                                      mut(d));
                    grads[i] = sum_to(d, i == 0 ? to.a : to.b);
                  }
                  return grads;
                });
}

Tensor masked_fill(const Tensor& x, const Tensor& keep, double value) {
  check_floating("masked_fill", x);
  check(keep && broadcasts_to(keep.shape(), x.shape()), "masked_fill",
        "the mask does not broadcast to the tensor: {} and {}", keep, x);
  return where(keep, x, full({}, value, x.dtype(), x.device()));
}

Tensor gt(const Tensor& a, const Tensor& b) { return compared("gt", a, Comparison::greater, b); }
Tensor ge(const Tensor& a, const Tensor& b) { return compared("ge", a, Comparison::greater_equal, b); }
Tensor lt(const Tensor& a, const Tensor& b) { return compared("lt", b, Comparison::greater, a); }
Tensor le(const Tensor& a, const Tensor& b) { return compared("le", b, Comparison::greater_equal, a); }
Tensor eq(const Tensor& a, const Tensor& b) { return compared("eq", a, Comparison::equal, b); }

Tensor maximum(const Tensor& a, const Tensor& b) {
  return extremum<true>("maximum", &KernelTable::maximum, a, b);
}
Tensor minimum(const Tensor& a, const Tensor& b) {
  return extremum<false>("minimum", &KernelTable::minimum, a, b);
}

Tensor clamp(const Tensor& x, double low, double high) {
  check_floating("clamp", x);
  check(low <= high, "clamp", "the lower bound {} is above the upper bound {}", low, high);
  const Tensor bottom = full({}, low, x.dtype(), x.device()), top = full({}, high, x.dtype(), x.device());
  return where(lt(x, bottom), bottom, where(gt(x, top), top, x));
}

}  // namespace bonsai
