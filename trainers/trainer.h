// A model with its optimizer, and one training step. The training loop is in loop.h.
#pragma once

#include <map>

#include "bonsai/framework/checks/nonfinite.h"
#include "bonsai/trainers/config.h"
#include "bonsai/trainers/optimizer/optimizer.h"

namespace bonsai {

struct StepResult {
  double loss = 0;           // mean over the step's tokens
  double learning_rate = 0;
  double gradient_norm = 0;  // norm of the gradient of the mean loss, before clipping
  int64_t tokens = 0;
};

class Trainer {
 public:
  // The task must be prepared, and the vocabulary size must be set.
  explicit Trainer(const RunConfig& config);

  // Runs step number `step`, which counts from 0 (messages count from 1): draws the micro-batches, runs
  // forward and backward passes, clips and updates. If the loss or a gradient is not finite, the passes are
  // repeated with every op traced, and an Error names the step, the first bad parameter and the op that made
  // the first bad value. With trace_nonfinite, every step is traced. `poll` is called between micro-batches.
  // No weight changes if the step throws.
  StepResult step(int64_t step, const Poll& poll = kNoPoll);

  // Elements of all parameters.
  int64_t parameter_count() const;
  Model& model() { return *model_; }
  Optimizer& optimizer() { return optimizer_; }
  ParameterArena& arena() { return arena_; }
  const RunConfig& config() const { return config_; }

 private:
  StepResult accumulate_gradients(int64_t step, const Poll& poll);  // the optimizer sums the losses
  [[noreturn]] void fail_not_finite(int64_t step, double loss, NonfiniteTrace& trace);

  RunConfig config_;
  Module root_;
  std::unique_ptr<Model> model_;
  ParameterArena arena_;
  Optimizer optimizer_;
  std::unique_ptr<Schedule> schedule_;
};

}  // namespace bonsai
