// AdamW over an arena.                                        Loshchilov & Hutter 2019, arXiv:1711.05101
#pragma once

#include "bonsai/framework/autograd/arena.h"
#include "bonsai/framework/backend/kernels.h"
#include "bonsai/trainers/config.h"

namespace bonsai {

class Optimizer {
 public:
  Optimizer(ParameterArena& arena, const OptimizerConfig& config);

  // Adds the loss of a micro-batch, summed over its tokens, to that of the step; the first begins it.
  void add_loss(const Tensor& sum, bool first);
  // Divides the gradients by the number of tokens they are a sum over, clips their norm and updates. Where
  // the loss or the norm is not finite nothing changes. Steps count from 0. The state is all that is read
  // from the device.
  kernel::StepState step(int64_t step, double learning_rate, int64_t tokens);
  kernel::StepState state() const;

  Tensor& m() { return m_; }  // first and second moments, laid out as the arena
  Tensor& v() { return v_; }

 private:
  ParameterArena& arena_;
  OptimizerConfig config_;
  Tensor m_, v_;
  kernel::StepState* on_device() { return static_cast<kernel::StepState*>(state_.mutable_data()); }

  Tensor state_;  // a StepState in the device's memory
};

}  // namespace bonsai
