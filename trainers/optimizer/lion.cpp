// Lion: the update is the sign of an interpolation of momentum and gradient. Learning rates are 3 to 10 times
// lower than those of AdamW. Chen et al. 2023, arXiv:2302.06675
#include "bonsai/trainers/optimizer/elementwise.h"

namespace bonsai {
namespace {

struct LionConfig : kernel::Lion {
  LionConfig() : kernel::Lion{.beta_1 = 0.9, .beta_2 = 0.99, .weight_decay = 1} {}
  template <class V>
  void visit(V& v) {
    v("beta_1", beta_1, "weight of the mean of gradients in the update; the gradient has the rest",
      between(0, 0.999999999));
    v("beta_2", beta_2, "decay of the mean of gradients", between(0, 0.999999999));
    v("weight_decay", weight_decay, "weight decay of matrices; biases and norm gains do not decay",
      between(0, 100));
  }
};

struct LionKernel {
  static constexpr auto kKernel = &KernelTable::lion;
  static std::vector<std::string> slots() { return {"mean"}; }
};

}  // namespace

void register_lion() { add_part<OptimizerKind, Elementwise<LionKernel, LionConfig>, LionConfig>("lion"); }

}  // namespace bonsai
