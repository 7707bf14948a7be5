// Stochastic gradient descent with momentum or Nesterov's.     Sutskever et al. 2013, ICML (PMLR 28)
#include "bonsai/trainers/optimizer/elementwise.h"

namespace bonsai {
namespace {

struct SgdConfig : kernel::Sgd {
  SgdConfig() : kernel::Sgd{.momentum = 0.9, .weight_decay = 0, .nesterov = false} {}
  template <class V>
  void visit(V& v) {
    v("momentum", momentum, "share of the last update that goes on; 0 for plain descent",
      between(0, 0.999999999));
    v("nesterov", nesterov, "whether the gradient is added once more, after the momentum");
    v("weight_decay", weight_decay, "of matrices and tables, added to their gradient", between(0, 100));
  }
};

struct SgdKernel {
  static constexpr auto kKernel = &KernelTable::sgd;
  static std::vector<std::string> slots() { return {"momentum"}; }
};

}  // namespace

void register_sgd() { add_part<OptimizerKind, Elementwise<SgdKernel, SgdConfig>, SgdConfig>("sgd"); }

}  // namespace bonsai
