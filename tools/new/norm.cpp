// my_part: a norm. `norm: my_part` in a config's model section selects it for every block and the end.
//
// This one divides by the mean of absolute values, not by the root of the mean square. Replace forward() with
// a formula of your own: its gradient follows from the ops.
#include "bonsai/framework/autograd/fill.h"
#include "bonsai/framework/ops/ops.h"
#include "bonsai/layers/registry.h"

namespace bonsai {
namespace {

struct MyPartConfig {
  int64_t width = 1;  // set by the model
  double eps = 1e-5;  // set by the model
  template <class V>
  void visit(V&) {}  // keys of its own
};

class MyPart final : public Layer {
 public:
  MyPart(Module* parent, std::string name, const MyPartConfig& c)
      : Layer(parent, std::move(name)),
        eps_(c.eps),
        weight_(&add_parameter("weight", {c.width}, constant(1), Decay::no)) {}

 protected:
  Tensor forward(const Tensor& x, Context&) override {  // (...,C) -> (...,C)
    const Tensor size = mean(sqrt(add(mul(x, x), full({}, eps_, x.dtype(), x.device()))), -1, /*keep=*/true);
    return mul(div(x, size), weight_->value);
  }

 private:
  double eps_;
  Parameter* weight_;  // (width)
};

}  // namespace

void register_my_part() { add_part<NormKind, MyPart, MyPartConfig>("my_part"); }

}  // namespace bonsai
