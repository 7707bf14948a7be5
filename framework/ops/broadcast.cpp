#include "bonsai/framework/ops/broadcast.h"

#include <algorithm>

namespace bonsai {

Tensor sum_to(const Tensor& dy, const Shape& shape) {
  Tensor x = dy;
  for (int axis = dy.rank() - 1; axis >= 0 && x.shape() != shape;) {
    const int offset = dy.rank() - shape.rank;
    const auto stretched = [&](int i) {
      return i < offset || (shape.dim[i - offset] == 1 && dy.size(i) != 1);
    };
    if (!stretched(axis)) {
      --axis;
      continue;
    }
    // One reduction sums the run of broadcast axes that ends here.
    int first = axis;
    while (first > 0 && stretched(first - 1)) --first;
    int64_t outer = 1, n = 1, inner = 1;
    for (int i = 0; i < x.rank(); ++i) (i < first ? outer : i <= axis ? n : inner) *= x.size(i);
    Shape kept = x.shape();
    std::fill(kept.dim + first, kept.dim + axis + 1, 1);
    Tensor y = empty(kept, x.dtype(), x.device());
    View in = view(x);
    in.shape = {outer, n, inner};
    kernels(x).sum(in, 1, mut(y));
    x = y;
    axis = first - 1;
  }
  return x.shape() == shape ? x : x.alias(shape);
}

void check_floating(const char* op, const Tensor& x) {
  check(x && is_floating(x.dtype()), op, "needs a floating tensor, got {}", x);
}

void check_alike(const char* op, const Tensor& a, const Tensor& b) {
  check_floating(op, a);
  check_floating(op, b);
  check(a.dtype() == b.dtype() && a.device() == b.device(), op,
        "operands differ in dtype or device: {} and {}", a, b);
}

}  // namespace bonsai
