// Elementwise ops: those of the list, those with a scalar argument, and dropout.
#include "bonsai/framework/ops/broadcast.h"
#include "bonsai/framework/autograd/record.h"
#include "bonsai/framework/ops/ops.h"

namespace bonsai {
namespace {

enum class Saves { none, x, y };

// An op of the list. kSaves is the tensor that its gradient reads.
template <auto Forward, auto Gradient, Saves kSaves>
Tensor unary(const char* op, const Tensor& x) {
  check_floating(op, x);
  Tensor y = empty_like(x);
  (kernels(x).*Forward)(view(x), mut(y));
  const Tensor nothing;
  const Tensor& saved = kSaves == Saves::x ? x : kSaves == Saves::y ? y : nothing;
  return record(op, {x}, y, {saved}, NoArgs{}, [](Tensor dy, Saved& s, Sink&, NoArgs) -> Grads {
    Tensor dx = reuse(dy);
    (kernels(dy).*Gradient)(view(kSaves == Saves::none ? dy : s[0]), view(dy), mut(dx));
    return {dx};
  });
}

}  // namespace

#define OP(name, functor, saves, domain)                                                       \
  Tensor name(const Tensor& x) {                                                               \
    return unary<&KernelTable::name, &KernelTable::name##_backward, Saves::saves>(#name, x);   \
  }
BONSAI_ELEMENTWISE(OP)
#undef OP

Tensor scale(const Tensor& x, double factor) {
  check_floating("scale", x);
  Tensor y = empty_like(x);
  kernels(x).scale(view(x), factor, mut(y));
  return record("scale", {x}, y, {}, factor, [](Tensor dy, Saved&, Sink&, double factor) -> Grads {
    Tensor dx = reuse(dy);
    kernels(dy).scale(view(dy), factor, mut(dx));
    return {dx};
  });
}

Tensor pow(const Tensor& x, double exponent) {
  check_floating("pow", x);
  Tensor y = empty_like(x);
  kernels(x).pow(view(x), exponent, mut(y));
  return record("pow", {x}, y, {x}, exponent,
                [](Tensor dy, Saved& saved, Sink&, double exponent) -> Grads {
                  Tensor dx = reuse(dy);
                  kernels(dy).pow_backward(view(saved[0]), view(dy), exponent, mut(dx));
                  return {dx};
                });
}

// Saves no tensor: the same key drops the same elements of the gradient.
Tensor dropout(const Tensor& x, double p, RandomKey key) {
  check_floating("dropout", x);
  check(p >= 0 && p <= 1, "dropout", "the rate is {}; it must be in [0, 1]", p);
  if (p == 0) return x;
  struct Args {
    double p;
    RandomKey key;
  };
  Tensor y = empty_like(x);
  kernels(x).dropout(view(x), p, key, mut(y));
  return record("dropout", {x}, y, {}, Args{p, key}, [](Tensor dy, Saved&, Sink&, Args a) -> Grads {
    Tensor dx = reuse(dy);
    kernels(dy).dropout(view(dy), a.p, a.key, mut(dx));
    return {dx};
  });
}

}  // namespace bonsai
