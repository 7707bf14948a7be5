// AdamW: Adam with decoupled weight decay.                     Loshchilov & Hutter 2019, arXiv:1711.05101
#pragma once

#include <cmath>

#include "bonsai/trainers/optimizer/elementwise.h"

namespace bonsai {

struct AdamWConfig : kernel::AdamW {
  AdamWConfig(kernel::AdamW keys = {.beta_1 = 0.9, .beta_2 = 0.99, .eps = 1e-8, .weight_decay = 0.1})
      : kernel::AdamW(keys) {}
  template <class V>
  void visit(V& v) {
    v("beta_1", beta_1, "decay of the mean of gradients", between(0, 0.999999999));
    v("beta_2", beta_2, "decay of the mean of squared gradients", between(0, 0.999999999));
    v("eps", eps, "added to the root of the second moment, after bias correction", between(1e-30, 1));
    v("weight_decay", weight_decay, "weight decay of matrices; biases and norm gains do not decay",
      between(0, 100));
  }
};

// Bias corrections 1 - beta^step of the moments, which start at 0.
template <class Keys>
std::array<double, 2> bias_corrections(const Keys& keys, int64_t step) {
  const auto n = static_cast<double>(step);
  return {1 - std::pow(keys.beta_1, n), 1 - std::pow(keys.beta_2, n)};
}

struct AdamWKernel {
  static constexpr auto kKernel = &KernelTable::adamw;
  static std::vector<std::string> slots() { return {"m", "v"}; }
  static std::array<double, 2> by_step(const AdamWConfig& c, int64_t step) {
    return bias_corrections(c, step);
  }
};

using AdamW = Elementwise<AdamWKernel, AdamWConfig>;

}  // namespace bonsai
