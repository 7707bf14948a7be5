// my_part: an optimizer. `kind: my_part` in a config's optimizer section selects it.
//
// This one divides the gradient's mean by the root of its mean square. Replace apply() with a formula of your
// own. It computes on the CPU.
#include <cmath>

#include "bonsai/trainers/optimizer/elementwise.h"

namespace bonsai {
namespace {

struct MyPartConfig {
  double momentum = 0.9;
  double weight_decay = 0.1;
  template <class V>
  void visit(V& v) {
    v("momentum", momentum, "decay of both means", between(0, 0.999));
    v("weight_decay", weight_decay, "of matrices and tables", between(0, 100));
  }
};

struct MyPart {
  // The names of the numbers that it keeps for each element. They begin as 0, and checkpoints hold them.
  static std::vector<std::string> slots() { return {"mean", "square"}; }

  // The new value of an element. The gradient is scaled and clipped; keys.weight_decay is 0 for elements that
  // do not decay.
  template <class T>
  static T apply(T value, T gradient, T* slots, const kernel::StepNumbers& step, const MyPartConfig& keys) {
    const T keep = static_cast<T>(keys.momentum), rate = static_cast<T>(step.learning_rate);
    slots[0] = keep * slots[0] + (1 - keep) * gradient;
    slots[1] = keep * slots[1] + (1 - keep) * gradient * gradient;
    const T update = slots[0] / (std::sqrt(slots[1]) + T(1e-8));
    return value - rate * (update + static_cast<T>(keys.weight_decay) * value);
  }
};

}  // namespace

void register_my_part() {
  add_part<OptimizerKind, Elementwise<MyPart, MyPartConfig>, MyPartConfig>("my_part");
}

}  // namespace bonsai
