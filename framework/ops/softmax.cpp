// Softmax over the last axis and its logarithm.
#include "bonsai/framework/autograd/record.h"
#include "bonsai/framework/ops/axes.h"
#include "bonsai/framework/ops/broadcast.h"
#include "bonsai/framework/ops/ops.h"

namespace bonsai {

// dx = y * (dy - sum(y * dy)), row by row: only y is needed, so x may be freed.
Tensor softmax(const Tensor& x) {
  check_floating("softmax", x);
  check_axes("softmax", "x", x, "(...,channels)");
  Tensor y = empty_like(x);
  kernels(x).softmax(view(x), mut(y));
  return record("softmax", {x}, y, {y}, NoArgs{}, [](Tensor dy, Saved& s, Sink&, NoArgs) -> Grads {
    Tensor dx = reuse(dy);
    kernels(dy).softmax_backward(view(s[0]), view(dy), mut(dx));
    return {dx};
  });
}

// dx = dy - exp(y) * sum(dy)
Tensor log_softmax(const Tensor& x) {
  check_floating("log_softmax", x);
  check_axes("log_softmax", "x", x, "(...,channels)");
  Tensor y = empty_like(x);
  kernels(x).log_softmax(view(x), mut(y));
  return record("log_softmax", {x}, y, {y}, NoArgs{}, [](Tensor dy, Saved& s, Sink&, NoArgs) -> Grads {
    Tensor dx = reuse(dy);
    kernels(dy).log_softmax_backward(view(s[0]), view(dy), mut(dx));
    return {dx};
  });
}

}  // namespace bonsai
