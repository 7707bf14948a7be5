// Cross-entropy from logits. A warp or a block computes the loss of a row and stores its largest logit and
// the sum of exponentials; one block adds the losses of the rows. The number of targets stays on the device.
#include "bonsai/framework/backend/cuda/loops.h"

namespace bonsai::cuda::BONSAI_LEVEL {
namespace {

// The number of targets that are not ignored. Called by all threads of a block.
__device__ int64_t counted(const int32_t* target, int64_t rows, int64_t ignore) {
  int64_t count = 0;
  for (int64_t i = threadIdx.x; i < rows; i += kBlock) count += target[i] != ignore;
  return block_reduce(count, Sum{});
}

__global__ void count_targets(const int32_t* target, int64_t rows, int64_t ignore, int64_t* count) {
  const int64_t n = counted(target, rows, ignore);
  if (threadIdx.x == 0) *count = n;
}

// loss = (1 - s) (log(sum) - (x[target] - top)) + s (log(sum) - mean(x - top))
template <int kTeam>
__global__ void row_losses(const real* x, const int32_t* target, kernel::CrossEntropy o, int64_t rows,
                           int64_t n, real* losses, real* stats, IndexError* index_error) {
  const int64_t row = Team<kTeam>::row();
  if (row >= rows) return;
  x += row * n;
  const TopSum t = top_and_sum<kTeam>(x, n);
  const real log_sum = math::log(t.sum);
  real soft = 0;
  if (o.label_smoothing != 0) {
    real shifted = 0;
    for (int64_t j = Team<kTeam>::lane(); j < n; j += kTeam) shifted += x[j] - t.top;
    soft = log_sum - Team<kTeam>::reduce(shifted, Sum{}) / static_cast<real>(n);
  }
  if (Team<kTeam>::lane() != 0) return;
  stats[2 * row] = t.top;
  stats[2 * row + 1] = t.sum;
  const int64_t id = target[row];
  if (id == o.ignore_index) {
    losses[row] = 0;
  } else if (id < 0 || id >= n) {
    losses[row] = std::numeric_limits<real>::quiet_NaN();
    report_index_error(index_error, 1, row, id, n);
  } else {
    const real hard = log_sum - (x[id] - t.top), s = static_cast<real>(o.label_smoothing);
    losses[row] = o.label_smoothing == 0 ? hard : (1 - s) * hard + s * soft;
  }
}

__global__ void total_loss(const real* losses, const int32_t* target, kernel::CrossEntropy o, int64_t rows,
                           real* loss) {
  double total = 0;
  for (int64_t i = threadIdx.x; i < rows; i += kBlock) total += static_cast<double>(losses[i]);
  total = block_reduce(total, Sum{});
  const int64_t count = o.mean ? counted(target, rows, o.ignore_index) : 1;
  if (threadIdx.x == 0) *loss = static_cast<real>(count > 1 ? total / static_cast<double>(count) : total);
}

// dx = dloss * (softmax - target distribution), divided by the number of targets for the mean. At the target,
// p - 1 is computed as minus the sum of the other p, which keeps its digits if p is nearly 1. dx may be x.
template <int kTeam>
__global__ void row_gradients(const real* x, const int32_t* target, const real* stats, const real* dloss,
                              const int64_t* count, kernel::CrossEntropy o, int64_t rows, int64_t n,
                              real* dx) {
  const int64_t row = Team<kTeam>::row();
  if (row >= rows) return;
  x += row * n, dx += row * n;
  const int64_t id = target[row];
  if (id == o.ignore_index || id < 0 || id >= n) {
    for (int64_t j = Team<kTeam>::lane(); j < n; j += kTeam) dx[j] = 0;
    return;
  }
  const real g = *dloss / static_cast<real>(o.mean && *count > 1 ? *count : 1);
  const real top = stats[2 * row], scale = 1 / stats[2 * row + 1];
  const real soft = static_cast<real>(o.label_smoothing / static_cast<double>(n));
  real others = 0;
  for (int64_t j = Team<kTeam>::lane(); j < n; j += kTeam) {
    if (j == id) continue;
    const real p = math::exp(x[j] - top) * scale;
    others += p;
    dx[j] = g * (p - soft);
  }
  others = Team<kTeam>::reduce(others, Sum{});
  if (Team<kTeam>::lane() == 0) dx[id] = g * (static_cast<real>(o.label_smoothing) - soft - others);
}

}  // namespace

void cross_entropy(View logits, View target, const kernel::CrossEntropy& options, MutView loss, MutView stats,
                   IndexError* index_error) {
  const int64_t n = logits.shape[-1], rows = target.shape.elements();
  const int32_t* ids = target.as<int32_t>();
  Scratch losses(rows * static_cast<int64_t>(sizeof(real)));
  launch_teams(rows, n, row_losses<kWarp>, row_losses<kBlock>, logits.as<real>(), ids, options, rows, n,
               losses.as<real>(), stats.as<real>(), index_error);
  launch_rows(1, total_loss, losses.as<real>(), ids, options, rows, loss.as<real>());
}

void cross_entropy_backward(View logits, View target, View stats, View dloss,
                            const kernel::CrossEntropy& options, MutView dlogits) {
  const int64_t n = logits.shape[-1], rows = target.shape.elements();
  const int32_t* ids = target.as<int32_t>();
  Scratch count(sizeof(int64_t));
  if (options.mean) launch_rows(1, count_targets, ids, rows, options.ignore_index, count.as<int64_t>());
  launch_teams(rows, n, row_gradients<kWarp>, row_gradients<kBlock>, logits.as<real>(), ids, stats.as<real>(),
               dloss.as<real>(), count.as<int64_t>(), options, rows, n, dlogits.as<real>());
}

}  // namespace bonsai::cuda::BONSAI_LEVEL
