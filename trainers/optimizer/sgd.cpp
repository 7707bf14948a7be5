// Stochastic gradient descent with momentum, optionally Nesterov momentum.
//                                                              Sutskever et al. 2013, ICML (PMLR 28)
#include "bonsai/trainers/optimizer/elementwise.h"

namespace bonsai {
namespace {

struct SgdConfig : kernel::Sgd {
  SgdConfig() : kernel::Sgd{.momentum = 0.9, .weight_decay = 0, .nesterov = false} {}
  template <class V>
  void visit(V& v) {
    v("momentum", momentum, "decay of the sum of gradients; 0 for plain gradient descent",
      between(0, 0.999999999));
    v("nesterov", nesterov, "whether to use Nesterov momentum");
    v("weight_decay", weight_decay, "weight decay of matrices, added to their gradient", between(0, 100));
  }
};

struct SgdKernel {
  static constexpr auto kKernel = &KernelTable::sgd;
  static std::vector<std::string> slots() { return {"momentum"}; }
};

}  // namespace

void register_sgd() { add_part<OptimizerKind, Elementwise<SgdKernel, SgdConfig>, SgdConfig>("sgd"); }

}  // namespace bonsai
