// The optimizer of a run: its rule, applied to all parameters of an arena, and the state that it keeps.
#pragma once

#include <map>

#include "bonsai/framework/autograd/arena.h"
#include "bonsai/trainers/optimizer/rule.h"

namespace bonsai {

class Optimizer {
 public:
  // Error if a group's pattern matches no parameter, or if the rule does not run on the arena's device.
  Optimizer(ParameterArena& arena, const OptimizerConfig& config);

  // Adds the loss of a micro-batch, summed over its tokens, to that of the step; the first begins it.
  void add_loss(const Tensor& sum, bool first);
  // Divides the gradients by the number of tokens that they are a sum over, clips their norm and updates. If
  // the loss or the norm is not finite, nothing changes. Steps count from 0. Only the state is read from the
  // device.
  kernel::StepState step(int64_t step, double learning_rate, int64_t tokens);
  kernel::StepState state() const;

  // Its tensors by name, "adamw.m.block.0.norm.weight", each in the shape that its rule gave it.
  const std::vector<std::pair<std::string, Tensor>>& tensors() const { return tensors_; }

 private:
  UpdateTarget target_of(Parameter& p, std::map<std::string, int64_t>& used);
  kernel::StepState* on_device() { return static_cast<kernel::StepState*>(state_.mutable_data()); }

  ParameterArena& arena_;
  OptimizerConfig config_;
  std::unique_ptr<UpdateRule> rule_;
  std::map<std::string, Tensor> slots_;  // by name: those of all parameters, end to end
  std::vector<std::pair<std::string, Tensor>> tensors_;
  std::vector<UpdateTarget> elements_, parameters_;
  Tensor state_;  // a StepState in the device's memory
};

// Elements of the state that an optimizer keeps for these parameters.
int64_t state_elements(const OptimizerConfig& config, const std::vector<Parameter*>& parameters);

}  // namespace bonsai
