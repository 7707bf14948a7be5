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

Evaluation mean_loss(Decoder& model, int64_t batches, const std::function<Batch(int64_t)>& batch) {
  double sum = 0;
  int64_t tokens = 0;
  for (int64_t i = 0; i < batches; ++i) {
    Context context;
    const LossSum loss = loss_of(model, batch(i), context);
    sum += loss.sum.item();
    tokens += loss.tokens;
  }
  return {.loss = sum / static_cast<double>(tokens)};
}

}  // namespace bonsai
