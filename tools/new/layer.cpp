// my_part: a feed-forward layer. `mlp: my_part` in a config's model section selects it.
//
// This one is down(relu(up(x))^2) (So et al. 2021, arXiv:2109.08668). Replace forward() with a formula of
// your own: its gradient follows from the ops. `bonsai gradcheck CONFIG` checks the gradient, and
// checkpoints hold the weights by path.
#include "bonsai/framework/ops/ops.h"
#include "bonsai/layers/linear.h"
#include "bonsai/layers/registry.h"

namespace bonsai {
namespace {

struct MyPartConfig {
  // The model sets these. Fields that the layer does not need can be removed.
  int64_t d_model = 1;
  int64_t d_hidden = 0;  // 0: 4 * d_model
  bool bias = true;
  double init_std = kInitStd, output_init_std = kInitStd;
  // The layer's own keys: `mlp: {kind: my_part, scale: 2}` in the model section.
  double scale = 1;
  template <class V>
  void visit(V& v) {
    v("scale", scale, "factor of the hidden activations", at_least(0));
  }
};

class MyPart final : public Layer {
 public:
  MyPart(Module* parent, std::string name, const MyPartConfig& c)
      : Layer(parent, std::move(name)),
        width_(c.d_hidden ? c.d_hidden : 4 * c.d_model),
        scale_(c.scale),
        up_{this, "up", {.in = c.d_model, .out = width_, .bias = c.bias, .init_std = c.init_std}},
        down_{this, "down", {.in = width_, .out = c.d_model, .bias = c.bias,
                             .init_std = c.output_init_std}} {}

 protected:
  Tensor forward(const Tensor& x, Context& context) override {  // (...,C) -> (...,C)
    const Tensor hidden = relu(up_(x, context));
    return down_(scale(mul(hidden, hidden), scale_), context);
  }

 private:
  int64_t width_;
  double scale_;
  Linear up_, down_;
};

}  // namespace

void register_my_part() { add_part<FeedForwardKind, MyPart, MyPartConfig>("my_part"); }

}  // namespace bonsai
