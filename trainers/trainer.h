// A model and its optimizer, and what one training step is. The loop around it is in loop.h.
#pragma once

#include <map>

#include "bonsai/framework/checks/nonfinite.h"
#include "bonsai/trainers/config.h"
#include "bonsai/trainers/optimizer/optimizer.h"

namespace bonsai {

struct StepResult {
  double loss = 0;           // mean over the step's tokens
  double learning_rate = 0;
  double gradient_norm = 0;  // of the mean loss, before clipping
  int64_t tokens = 0;
};

class Trainer {
 public:
  // The task is prepared. A vocabulary that the file does not give is the task's.
  explicit Trainer(const RunConfig& config);

  // Step number `step`, from 0 (messages count from 1): draw the micro-batches, forward, backward, clip,
  // update. Where the loss or a gradient is not finite, an Error names the step, the first bad parameter and,
  // from a second try under watch, the op that made the first bad value; no weight has changed. With
  // trace_nonfinite every step is under watch. If `poll`, called between micro-batches, throws, no weight has
  // changed either.
  StepResult step(int64_t step, const Poll& poll = kNoPoll);

  // Elements of all parameters.
  int64_t parameter_count() const;
  Model& model() { return *model_; }
  Optimizer& optimizer() { return optimizer_; }
  ParameterArena& arena() { return arena_; }
  const RunConfig& config() const { return config_; }

 private:
  StepResult accumulate_gradients(int64_t step, const Poll& poll);  // the loss is left to the optimizer
  [[noreturn]] void fail_not_finite(int64_t step, double loss, NonfiniteTrace& trace);

  RunConfig config_;
  Module root_;
  std::unique_ptr<Model> model_;
  ParameterArena arena_;
  Optimizer optimizer_;
  std::unique_ptr<Schedule> schedule_;
};

}  // namespace bonsai
