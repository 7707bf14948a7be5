// Layer norm and RMS norm over the last axis. They save the statistics of each row (backend/norm.h); backward
// functions recompute the normalized row.
#include "bonsai/framework/autograd/record.h"
#include "bonsai/framework/ops/axes.h"
#include "bonsai/framework/ops/broadcast.h"
#include "bonsai/framework/ops/ops.h"

namespace bonsai {
namespace {

void check_row_parameter(const char* op, const Tensor& x, const Tensor& parameter) {
  check_alike(op, x, parameter);
  check_axes(op, "x", x, "(...,channels)");
  check(parameter.shape() == Shape{x.size(-1)}, op, "{} does not fit the last axis of {}", parameter, x);
}

void check_eps(const char* op, double eps) { check(eps >= 0, op, "eps is {}; it must be at least 0", eps); }

}  // namespace

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  check_row_parameter("layer_norm", x, weight);
  if (bias) check_row_parameter("layer_norm", x, bias);
  check_eps("layer_norm", eps);
  Tensor y = empty_like(x);
  Tensor stats = empty({x.shape().rows(), 3}, x.dtype(), x.device());
  kernels(x).layer_norm(view(x), view(weight), view(bias), eps, mut(y), mut(stats));
  return record("layer_norm", {x, weight, bias}, y, {x, weight, stats}, NoArgs{},
                [](Tensor dy, Saved& s, Sink& sink, NoArgs) -> Grads {
                  Tensor dx = s.needs(0) ? empty_like(dy) : Tensor();
                  auto dweight = sink.into(1), dbias = sink.into(2);
                  kernels(dy).layer_norm_backward(view(s[0]), view(s[1]), view(s[2]), view(dy),
                                                  dx ? mut(dx) : MutView{}, grad_view(dweight),
                                                  grad_view(dbias));
                  return {dx};
                });
}

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps) {
  check_row_parameter("rms_norm", x, weight);
  check_eps("rms_norm", eps);
  Tensor y = empty_like(x);
  Tensor stats = empty({x.shape().rows(), 2}, x.dtype(), x.device());
  kernels(x).rms_norm(view(x), view(weight), eps, mut(y), mut(stats));
  return record("rms_norm", {x, weight}, y, {x, weight, stats}, NoArgs{},
                [](Tensor dy, Saved& s, Sink& sink, NoArgs) -> Grads {
                  Tensor dx = s.needs(0) ? empty_like(dy) : Tensor();
                  auto dweight = sink.into(1);
                  kernels(dy).rms_norm_backward(view(s[0]), view(s[1]), view(s[2]), view(dy),
                                                dx ? mut(dx) : MutView{}, grad_view(dweight));
                  return {dx};
                });
}

}  // namespace bonsai
