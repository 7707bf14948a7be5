// The optimizer of a run: applies an UpdateRule to all parameters of an arena and keeps its state.
#pragma once

#include <map>

#include "bonsai/framework/autograd/arena.h"
#include "bonsai/trainers/optimizer/rule.h"

namespace bonsai {

class Optimizer {
 public:
  // Throws Error if a group's pattern matches no parameter or the rule does not run on the arena's device.
  Optimizer(ParameterArena& arena, const OptimizerConfig& config);

  // Adds the loss of a micro-batch, summed over its tokens, to the step's loss, which `first` resets.
  void add_loss(const Tensor& sum, bool first);
  // Divides the gradients by `tokens`, clips their norm and updates the parameters. Changes nothing if the
  // loss or the norm is not finite. Steps count from 0. Only the StepState is copied from the device.
  kernel::StepState step(int64_t step, double learning_rate, int64_t tokens);
  kernel::StepState state() const;

  // State tensors in the shapes of the rule's slots, with names such as "adamw.m.block.0.norm.weight".
  const std::vector<std::pair<std::string, Tensor>>& tensors() const { return tensors_; }

 private:
  UpdateTarget target_of(Parameter& p, std::map<std::string, int64_t>& used);
  kernel::StepState* on_device() { return static_cast<kernel::StepState*>(state_.mutable_data()); }

  ParameterArena& arena_;
  OptimizerConfig config_;
  std::unique_ptr<UpdateRule> rule_;
  std::map<std::string, Tensor> slots_;  // by slot name: the state of all parameters, concatenated
  std::vector<std::pair<std::string, Tensor>> tensors_;
  std::vector<UpdateTarget> elements_, parameters_;
  Tensor state_;  // a StepState in the device's memory
};

// Number of elements of the state that an optimizer keeps for these parameters.
int64_t state_elements(const OptimizerConfig& config, const std::vector<Parameter*>& parameters);

}  // namespace bonsai
