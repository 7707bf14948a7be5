// Elementwise optimizers, one functor per optimizer: the new value of one element. g++ vectorises them in
// backend/cpu; nvcc compiles the same source in backend/cuda.
//
// To add one, write its functor here, its options and its line in update_list.h, and its keys in
// trainers/optimizer.
#pragma once

#include "bonsai/framework/backend/kernels.h"
#include "bonsai/framework/backend/math.h"
#include "bonsai/framework/core/level.h"

namespace bonsai {
inline namespace BONSAI_LEVEL {

// apply(value, gradient, slots, step, options): the gradient is scaled and clipped; the slots, kSlots of
// them, are changed in place and begin as 0. step.learning_rate is the parameter's.

// Loshchilov & Hutter 2019, arXiv:1711.05101. The decay is apart from the gradient; eps is added after the
// bias correction. step.by_step has the corrections, 1 - beta^step.
struct AdamW {
  static constexpr int kSlots = 2;
  template <class T>
  static constexpr T apply(T value, T gradient, T* slots, const kernel::StepNumbers& step,
                           const kernel::AdamW& o) {
    const T b1 = static_cast<T>(o.beta_1), b2 = static_cast<T>(o.beta_2);
    const T c1 = static_cast<T>(1 - o.beta_1), c2 = static_cast<T>(1 - o.beta_2);
    const T rate = static_cast<T>(step.learning_rate / step.by_step[0]);
    const T root = static_cast<T>(1 / math::sqrt(step.by_step[1]));
    const T keep = static_cast<T>(1 - step.learning_rate * o.weight_decay);
    const T mean = b1 * slots[0] + c1 * gradient, square = b2 * slots[1] + c2 * gradient * gradient;
    slots[0] = mean;
    slots[1] = square;
    return value * keep - rate * mean / (math::sqrt(square) * root + static_cast<T>(o.eps));
  }
};

// Kingma & Ba 2015, arXiv:1412.6980. The decay is part of the gradient.
struct Adam {
  static constexpr int kSlots = 2;
  template <class T>
  static constexpr T apply(T value, T gradient, T* slots, const kernel::StepNumbers& step,
                           const kernel::Adam& o) {
    const kernel::AdamW rest{o.beta_1, o.beta_2, o.eps, 0};
    return AdamW::apply(value, gradient + static_cast<T>(o.weight_decay) * value, slots, step, rest);
  }
};

// Stochastic gradient descent with momentum (Sutskever et al. 2013) as PyTorch defines it: the rate
// multiplies the momentum. The decay is part of the gradient.
struct Sgd {
  static constexpr int kSlots = 1;
  template <class T>
  static constexpr T apply(T value, T gradient, T* slots, const kernel::StepNumbers& step,
                           const kernel::Sgd& o) {
    const T momentum = static_cast<T>(o.momentum), g = gradient + static_cast<T>(o.weight_decay) * value;
    slots[0] = momentum * slots[0] + g;
    return value - static_cast<T>(step.learning_rate) * (o.nesterov ? g + momentum * slots[0] : slots[0]);
  }
};

// Chen et al. 2023, arXiv:2302.06675: the sign of a mean, with a decay apart from the gradient.
struct Lion {
  static constexpr int kSlots = 1;
  template <class T>
  static constexpr T apply(T value, T gradient, T* slots, const kernel::StepNumbers& step,
                           const kernel::Lion& o) {
    const T b1 = static_cast<T>(o.beta_1), b2 = static_cast<T>(o.beta_2);
    const T c1 = static_cast<T>(1 - o.beta_1), c2 = static_cast<T>(1 - o.beta_2);
    const T mean = b1 * slots[0] + c1 * gradient;
    const T sign = mean > 0 ? T(1) : mean < 0 ? T(-1) : T(0);
    slots[0] = b2 * slots[0] + c2 * gradient;
    return value * static_cast<T>(1 - step.learning_rate * o.weight_decay) -
           static_cast<T>(step.learning_rate) * sign;
  }
};

}  // namespace BONSAI_LEVEL
}  // namespace bonsai
