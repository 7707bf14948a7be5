// Cross-entropy from logits.
#include "bonsai/framework/autograd/record.h"
#include "bonsai/framework/ops/axes.h"
#include "bonsai/framework/ops/broadcast.h"
#include "bonsai/framework/ops/ops.h"

namespace bonsai {

// dlogits = dloss * (softmax(logits) - target distribution), written into the memory of the logits if nothing
// else uses it.
Tensor cross_entropy(const Tensor& logits, const Tensor& target, const CrossEntropyOptions& options) {
  check_floating("cross_entropy", logits);
  check(target && target.dtype() == DType::i32, "cross_entropy", "targets must be i32, got {}", target);
  check_axes("cross_entropy", "logits", logits, "(...,vocabulary)");
  const Shape rows = reduced(logits.shape(), logits.rank() - 1, false);
  check(target.shape() == rows, "cross_entropy", "the target of logits {} must be i32{}, got {}", logits,
        rows, target);
  check(options.label_smoothing >= 0 && options.label_smoothing <= 1, "cross_entropy",
        "label smoothing is {}; it must be in [0, 1]", options.label_smoothing);
  const kernel::CrossEntropy args{options.label_smoothing, options.ignore_index,
                          options.reduction == CrossEntropyOptions::mean};
  Tensor loss = empty({}, logits.dtype(), logits.device());
  Tensor stats = empty({target.elements(), 2}, logits.dtype(), logits.device());
  kernels(logits).cross_entropy(view(logits), view(target), args, mut(loss), mut(stats),
                                index_error(logits.device()));
  check_faults("cross_entropy", logits.device());
  return record("cross_entropy", {logits}, loss, {logits, target, stats}, args,
                [](Tensor dy, Saved& s, Sink&, kernel::CrossEntropy args) -> Grads {
                  const Tensor logits = s.take(0);
                  Tensor dlogits = reuse(logits);
                  kernels(dy).cross_entropy_backward(view(logits), view(s[1]), view(s[2]), view(dy), args,
                                                     mut(dlogits));
                  return {dlogits};
                });
}

}  // namespace bonsai
