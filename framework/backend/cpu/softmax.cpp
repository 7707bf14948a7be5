// Softmax and log-softmax of rows. The softmax of a row of only -inf is zeros.
#include "bonsai/framework/backend/cpu/loops.h"

namespace bonsai::cpu::BONSAI_LEVEL {

void softmax(View x, MutView y) {
  const int64_t n = x.shape[-1];
  for_rows(x.shape.rows(), n, [&](int64_t row) {
    const real* in = x.as<real>() + row * n;
    real* out = y.as<real>() + row * n;
    const real top = max_of(in, n);
    if (top == -math::infinity<real>) return fill(out, n, empty_weight(in, n));
    const real scale = 1 / exponentials(in, n, top, out);
    for (int64_t i = 0; i < n; ++i) out[i] *= scale;
  });
}

void softmax_backward(View y, View dy, MutView dx) {
  const int64_t n = y.shape[-1];
  for_rows(y.shape.rows(), n, [&](int64_t row) {
    const real *p = y.as<real>() + row * n, *d = dy.as<real>() + row * n;
    softmax_gradient(p, d, softmax_mean(p, d, n), dx.as<real>() + row * n, n);
  });
}

void log_softmax(View x, MutView y) {
  const int64_t n = x.shape[-1];
  for_rows(x.shape.rows(), n, [&](int64_t row) {
    const real* in = x.as<real>() + row * n;
    real* out = y.as<real>() + row * n;
    const real top = max_of(in, n);
    if (top == -math::infinity<real>) return fill(out, n, top + empty_weight(in, n));
    real sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; ++i) sum += math::exp(in[i] - top);
    const real log_sum = math::log(sum);
    for (int64_t i = 0; i < n; ++i) out[i] = (in[i] - top) - log_sum;
  });
}

// dx = d - p sum(d). The largest p may be nearly 1; its element is computed as dx = d sum(other p) - p
// sum(other d).
void log_softmax_backward(View y, View dy, MutView dx) {
  const int64_t n = y.shape[-1];
  for_rows(y.shape.rows(), n, [&](int64_t row) {
    const real* l = y.as<real>() + row * n;
    const real* d = dy.as<real>() + row * n;
    real* out = dx.as<real>() + row * n;
    int64_t k = 0;
    for (int64_t i = 1; i < n; ++i)
      if (l[i] > l[k]) k = i;
    if (n && l[k] == -math::infinity<real>) return fill(out, n, 0);  // a row of only -inf is constant
    real other_p = 0, other_d = 0;
    for (int64_t i = 0; i < n; ++i) {
      other_p += i == k ? real(0) : math::exp(l[i]);
      other_d += i == k ? real(0) : d[i];
    }
    const real at_k = n ? d[k] * other_p - math::exp(l[k]) * other_d : real(0);
    const real sum = n ? other_d + d[k] : real(0);
    for (int64_t i = 0; i < n; ++i) out[i] = i == k ? at_k : d[i] - math::exp(l[i]) * sum;
  });
}

}  // namespace bonsai::cpu::BONSAI_LEVEL
