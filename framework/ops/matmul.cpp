// Matrix products: matmul with broadcast batch axes, and the linear layer's x W^T + b.
#include <algorithm>
#include <limits>

#include "bonsai/framework/autograd/record.h"
#include "bonsai/framework/ops/axes.h"
#include "bonsai/framework/ops/broadcast.h"
#include "bonsai/framework/ops/ops.h"

namespace bonsai {
namespace {

Shape batch_of(const Shape& s) { return Shape(std::span(s.dim, static_cast<size_t>(s.rank - 2))); }

// Sets the strides in elements of an operand along the batch axes; 0 along a broadcast axis.
void set_steps(int64_t (&step)[kernel::Gemm::kBatchAxes], const Shape& operand, const Shape& batch) {
  int64_t size = operand[-1] * operand[-2];
  for (int i = 1; i <= batch.rank; ++i) {
    const bool own = i <= operand.rank - 2;
    const int64_t n = own ? operand[-2 - i] : 1;
    step[batch.rank - i] = n == 1 ? 0 : size;
    size *= n;
  }
}

// Merges batch axes into one larger product if they continue the rows of A and C with the same B, or the
// inner dimension of A and B with the same C.
void merge_batch(kernel::Gemm& g) {
  for (int axis = kernel::Gemm::kBatchAxes - 1; axis >= 0; --axis) {
    int64_t& n = g.batch[axis];
    if (n == 1) continue;
    if (!g.a.transposed && g.b.step[axis] == 0 && g.a.step[axis] == g.m * g.a.ld &&
        g.c_step[axis] == g.m * g.ldc) {
      g.m *= n;
    } else if (g.a.transposed && !g.b.transposed && g.c_step[axis] == 0 &&
               g.a.step[axis] == g.k * g.a.ld && g.b.step[axis] == g.k * g.b.ld) {
      g.k *= n;
    } else {
      return;
    }
    n = 1;
  }
}

// c = op(a) op(b), or c += op(a) op(b); sums over the batch axes that c lacks.
void product(Tensor& c, const Tensor& a, bool a_transposed, const Tensor& b, bool b_transposed,
             bool add = false, const Tensor& bias = {}) {
  const Shape batch = broadcast("matmul", batch_of(a.shape()), batch_of(b.shape()));
  kernel::Gemm g{};
  g.m = c.size(-2), g.n = c.size(-1), g.k = a.size(a_transposed ? -2 : -1);
  g.a = {a.data(), a.size(-1), a_transposed, {}};
  g.b = {b.data(), b.size(-1), b_transposed, {}};
  g.c = c.mutable_data(), g.ldc = c.size(-1);
  set_steps(g.a.step, a.shape(), batch);
  set_steps(g.b.step, b.shape(), batch);
  set_steps(g.c_step, c.shape(), batch);
  for (int i = 0; i < kernel::Gemm::kBatchAxes; ++i) g.batch[i] = i < batch.rank ? batch.dim[i] : 1;
  g.bias = view(bias).data;
  g.add = add;
  merge_batch(g);
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();  // BLAS sizes are 32-bit
  check(std::max({g.m, g.n, g.k, g.a.ld, g.b.ld, g.ldc}) <= kMax, "matmul",
        "{} and {} are too large: BLAS counts to {}", a, b, kMax);
  kernels(c).gemm(g);
}

struct Transposes {
  bool a, b;
};

Tensor rows_of(const Tensor& x) { return x.alias({x.shape().rows(), x.size(-1)}); }

}  // namespace

// With Y = op(A) op(B): d op(A) = dY op(B)^T and d op(B) = op(A)^T dY; swapped operands transpose the result.
Tensor matmul(const Tensor& a, const Tensor& b, bool transpose_a, bool transpose_b) {
  check_alike("matmul", a, b);
  check_axes("matmul", "a", a, "(...,rows,columns)");
  check_axes("matmul", "b", b, "(...,rows,columns)");
  const int64_t m = a.size(transpose_a ? -1 : -2), k = a.size(transpose_a ? -2 : -1);
  const int64_t n = b.size(transpose_b ? -2 : -1);
  check(k == b.size(transpose_b ? -1 : -2), "matmul", "inner sizes differ: {}{} and {}{}", a,
        transpose_a ? " transposed" : "", b, transpose_b ? " transposed" : "");
  Shape shape = broadcast("matmul", batch_of(a.shape()), batch_of(b.shape()));
  shape.dim[shape.rank++] = m;
  shape.dim[shape.rank++] = n;
  Tensor y = empty(shape, a.dtype(), a.device());
  product(y, a, transpose_a, b, transpose_b);
  return record("matmul", {a, b}, y, {a, b}, Transposes{transpose_a, transpose_b},
                [](Tensor dy, Saved& s, Sink&, Transposes t) -> Grads {
                  Grads grads(2);
                  const Tensor &a = s[0], &b = s[1];
                  if (s.needs(0)) {
                    grads[0] = empty_like(a);
                    t.a ? product(grads[0], b, t.b, dy, true) : product(grads[0], dy, false, b, !t.b);
                  }
                  if (s.needs(1)) {
                    grads[1] = empty_like(b);
                    t.b ? product(grads[1], dy, true, a, t.a) : product(grads[1], a, !t.a, dy, false);
                  }
                  return grads;
                });
}

// dx += dy W, dW += dy^T x, db += column sums of dy, written directly into the running gradients.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check_alike("linear", x, weight);
  check_axes("linear", "x", x, "(...,in)");
  check_axes("linear", "the weight", weight, "(out,in)");
  check(x.size(-1) == weight.size(1), "linear", "inner sizes differ: x {}, {}", x, weight);
  check(!bias || (bias.dtype() == x.dtype() && bias.shape() == Shape{weight.size(0)}), "linear",
        "the bias does not fit the weight: {} and {}", bias, weight);
  Shape shape = x.shape();
  shape[-1] = weight.size(0);
  Tensor y = empty(shape, x.dtype(), x.device());
  Tensor rows = rows_of(y);
  product(rows, rows_of(x), false, weight, true, false, bias);
  return record("linear", {x, weight, bias}, y, {x, weight}, NoArgs{},
                [](Tensor dy, Saved& s, Sink& sink, NoArgs) -> Grads {
                  const Tensor d = rows_of(dy);
                  if (auto dx = sink.into(0)) {
                    Tensor into = rows_of(dx.grad);
                    product(into, d, false, s[1], false, dx.add);
                  }
                  if (auto dw = sink.into(1)) product(dw.grad, d, true, rows_of(s[0]), false, dw.add);
                  if (auto db = sink.into(2)) kernels(dy).column_sums(view(d), grad_view(db));
                  return {};
                });
}

}  // namespace bonsai
