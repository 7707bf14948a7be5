// Adam.                                                             Kingma & Ba 2015, arXiv:1412.6980
#include "bonsai/trainers/optimizer/adamw.h"

namespace bonsai {
namespace {

struct AdamConfig : kernel::Adam {
  AdamConfig() : kernel::Adam{.beta_1 = 0.9, .beta_2 = 0.99, .eps = 1e-8, .weight_decay = 0} {}
  template <class V>
  void visit(V& v) {
    v("beta_1", beta_1, "decay of the mean of gradients", between(0, 0.999999999));
    v("beta_2", beta_2, "decay of the mean of squared gradients", between(0, 0.999999999));
    v("eps", eps, "added to the root of the second moment, after bias correction", between(1e-30, 1));
    v("weight_decay", weight_decay,
      "weight decay of matrices, added to their gradient; adamw applies it to the weights", between(0, 100));
  }
};

struct AdamKernel {
  static constexpr auto kKernel = &KernelTable::adam;
  static std::vector<std::string> slots() { return {"m", "v"}; }
  static std::array<double, 2> by_step(const AdamConfig& c, int64_t step) {
    return bias_corrections(c, step);
  }
};

}  // namespace

void register_adam() { add_part<OptimizerKind, Elementwise<AdamKernel, AdamConfig>, AdamConfig>("adam"); }

}  // namespace bonsai
