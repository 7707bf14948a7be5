// Softmax and its logarithm: rows are independent. A row of only -inf gives zeros (softmax).
#include "framework/backend/cpu/loops.h"

namespace bonsai::cpu::BONSAI_LEVEL {

void softmax(View x, MutView y) {
  const int64_t n = x.shape[-1];
  for_rows(x.shape.rows(), n, [&](int64_t row) {
    const real* in = x.as<real>() + row * n;
    real* out = y.as<real>() + row * n;
    const real top = max_of(in, n);
    if (top == -math::infinity<real>) return fill(out, n, empty_weight(in, n));
    real sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; ++i) {
      out[i] = math::exp(in[i] - top);
      sum += out[i];
    }
    const real scale = 1 / sum;
    for (int64_t i = 0; i < n; ++i) out[i] *= scale;
  });
}

void softmax_backward(View y, View dy, MutView dx) {
  const int64_t n = y.shape[-1];
  for_rows(y.shape.rows(), n, [&](int64_t row) {
    const real* p = y.as<real>() + row * n;
    const real* d = dy.as<real>() + row * n;
    real* out = dx.as<real>() + row * n;
    const real mean = dot(p, d, n);
    for (int64_t i = 0; i < n; ++i) out[i] = p[i] * (d[i] - mean);
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

void log_softmax_backward(View y, View dy, MutView dx) {
  const int64_t n = y.shape[-1];
  for_rows(y.shape.rows(), n, [&](int64_t row) {
    const real* l = y.as<real>() + row * n;
    const real* d = dy.as<real>() + row * n;
    real* out = dx.as<real>() + row * n;
    const real sum = sum_of(d, n);
    for (int64_t i = 0; i < n; ++i) out[i] = d[i] - math::exp(l[i]) * sum;
  });
}

}  // namespace bonsai::cpu::BONSAI_LEVEL
