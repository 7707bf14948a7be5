// The layer with a wrong gradient of framework/checks/README.md, as a user would write it.
#include "bonsai/framework/autograd/record.h"
#include "bonsai/layers/linear.h"
#include "bonsai/layers/model/transformer.h"
#include "bonsai/layers/registry.h"

namespace bonsai {
namespace {

Tensor cube(const Tensor& x) {
  const Tensor v = x.detach();  // ops on it are not recorded
  return record(
      "cube", {x}, mul(v, mul(v, v)), {x}, NoArgs{},
      [](Tensor dy, Saved& s, Sink&, NoArgs) -> Grads { return {mul(dy, scale(mul(s[0], s[0]), 2))}; });
}

struct CubedConfig {
  int64_t d_model = 1;
  template <class V> void visit(V&) {}
};

class Cubed final : public Layer {
 public:
  Cubed(Module* parent, std::string name, const CubedConfig& c)
      : Layer(parent, std::move(name)), up{this, "up", {.in = c.d_model, .out = c.d_model}} {}
  Linear up;

 protected:
  Tensor forward(const Tensor& x, Context& context) override { return cube(up(x, context)); }
};

}  // namespace

void register_cubed() { add_part<FeedForwardKind, Cubed, CubedConfig>("cubed"); }

}  // namespace bonsai
