// Cross-entropy from logits. The statistics of a row are its largest logit and the sum of exponentials. The
// loss is log(sum) - (target logit - largest logit), which keeps its digits for logits of any size.
#include "bonsai/framework/backend/cpu/loops.h"

namespace bonsai::cpu::BONSAI_LEVEL {
namespace {

// The number of targets that are not ignored.
int64_t counted(const int32_t* target, int64_t rows, int64_t ignore) {
  int64_t n = 0;
  for (int64_t i = 0; i < rows; ++i) n += target[i] != ignore;
  return n;
}

real row_loss(const real* x, int64_t n, int64_t target, double smoothing, real top, real sum) {
  const real log_sum = math::log(sum);
  const real hard = log_sum - (x[target] - top);
  if (smoothing == 0) return hard;
  real shifted = 0;
  for (int64_t j = 0; j < n; ++j) shifted += x[j] - top;
  const real soft = log_sum - shifted / static_cast<real>(n);
  const real s = static_cast<real>(smoothing);
  return (1 - s) * hard + s * soft;
}

// Writes the gradients of logits other than the target's and returns the sum of their probabilities. out may
// be x.
real other_gradients(const real* x, real top, real scale, real g, real soft, int64_t begin, int64_t end,
                     real* out) {
  real sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t j = begin; j < end; ++j) {
    const real p = math::exp(x[j] - top) * scale;
    sum += p;
    out[j] = g * (p - soft);
  }
  return sum;
}

}  // namespace

void cross_entropy(View logits, View target, const kernel::CrossEntropy& options, MutView loss,
                   MutView stats, IndexError* index_error) {
  const int64_t n = logits.shape[-1], rows = target.shape.elements();
  const int32_t* ids = target.as<int32_t>();
  for (int64_t i = 0; i < rows; ++i) {
    if (ids[i] == options.ignore_index || (ids[i] >= 0 && ids[i] < n)) continue;
    *index_error = {1, i, ids[i], n};
    return;
  }
  real total = 0;
  sum_over_rows(rows, 1, 4 * n, &total, false, [&](int64_t row, real* sums) {
    const real* x = logits.as<real>() + row * n;
    const real top = max_of(x, n);
    real sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < n; ++j) sum += math::exp(x[j] - top);
    stats.as<real>()[2 * row] = top;
    stats.as<real>()[2 * row + 1] = sum;
    if (ids[row] != options.ignore_index)
      sums[0] += row_loss(x, n, ids[row], options.label_smoothing, top, sum);
  });
  const int64_t count = counted(ids, rows, options.ignore_index);
  loss.as<real>()[0] = options.mean && count > 0 ? total / static_cast<real>(count) : total;
}

// dlogits = dloss * (softmax - target distribution), divided by the number of targets for the mean. At the
// target, p - 1 is computed as minus the sum of the other p, which keeps its digits if p is nearly 1.
void cross_entropy_backward(View logits, View target, View stats, View dloss,
                            const kernel::CrossEntropy& options, MutView dlogits) {
  const int64_t n = logits.shape[-1], rows = target.shape.elements();
  const int32_t* ids = target.as<int32_t>();
  const int64_t count = options.mean ? counted(ids, rows, options.ignore_index) : 1;
  const real g = dloss.as<real>()[0] / static_cast<real>(larger(1, count));
  const real soft = static_cast<real>(options.label_smoothing / static_cast<double>(n));
  for_rows(rows, 4 * n, [&](int64_t row) {
    const real* x = logits.as<real>() + row * n;
    real* out = dlogits.as<real>() + row * n;
    if (ids[row] == options.ignore_index) return fill(out, n, 0);
    const real top = stats.as<real>()[2 * row], scale = 1 / stats.as<real>()[2 * row + 1];
    const int64_t target = ids[row];
    const real others = other_gradients(x, top, scale, g, soft, 0, target, out) +
                        other_gradients(x, top, scale, g, soft, target + 1, n, out);
    out[target] = g * (static_cast<real>(options.label_smoothing) - soft - others);
  });
}

}  // namespace bonsai::cpu::BONSAI_LEVEL
