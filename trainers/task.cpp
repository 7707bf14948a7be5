#include "trainers/task.h"

#include "framework/ops/ops.h"

namespace bonsai {

LossSum loss_of(Decoder& model, const Batch& batch, Context& context) {
  LossSum loss;
  for (int32_t target : batch.targets.span<int32_t>()) loss.tokens += target != kIgnore;
  loss.sum = cross_entropy(model(batch.inputs, context), batch.targets,
                           {.ignore_index = kIgnore, .reduction = CrossEntropyOptions::sum});
  return loss;
}

}  // namespace bonsai
