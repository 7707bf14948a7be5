// The elementwise optimizers that have kernels on both devices, and their options. Their formulas are in
// updates.h.
#pragma once

namespace bonsai::kernel {

inline constexpr int kMaxSlots = 2;  // tensors of state per parameter

struct AdamW {
  double beta_1, beta_2, eps, weight_decay;
};
struct Adam {
  double beta_1, beta_2, eps, weight_decay;
};
struct Sgd {
  double momentum, weight_decay;
  bool nesterov;
};
struct Lion {
  double beta_1, beta_2, weight_decay;
};

}  // namespace bonsai::kernel

//     name   functor, and struct of options
#define BONSAI_UPDATES(UPDATE) \
  UPDATE(adamw, AdamW)         \
  UPDATE(adam, Adam)           \
  UPDATE(sgd, Sgd)             \
  UPDATE(lion, Lion)
