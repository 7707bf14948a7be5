// my_part: an op with a gradient of its own, and a feed-forward layer of the same name that uses it. `mlp:
// my_part` in a config's model section selects the layer. The op has a row in the op table: `bonsai gradcheck
// --op my_part` checks its gradient, and `bonsai gradcheck` those of all ops.
//
// This op is x^3. An op that other ops can express needs no gradient of its own: write it as a plain
// function.
#include "bonsai/framework/autograd/record.h"
#include "bonsai/framework/checks/op_cases.h"
#include "bonsai/framework/ops/ops.h"
#include "bonsai/layers/linear.h"
#include "bonsai/layers/registry.h"

namespace bonsai {
namespace {

// y = x^3, dx = 3 x^2 dy, for a floating x of any shape. The backward function may use the saved tensors
// alone.
Tensor my_part(const Tensor& x) {
  const Tensor v = x.detach();  // ops on it are not recorded
  return record("my_part", {x}, mul(v, mul(v, v)), /*saved=*/{x}, NoArgs{},
                [](Tensor dy, Saved& saved, Sink&, NoArgs) -> Grads {
                  return {mul(dy, scale(mul(saved[0], saved[0]), 3))};
                });
}

struct MyPartConfig {
  int64_t d_model = 1;  // set by the model
  template <class V>
  void visit(V&) {}
};

class MyPart final : public Layer {
 public:
  MyPart(Module* parent, std::string name, const MyPartConfig& c)
      : Layer(parent, std::move(name)), linear_{this, "linear", {.in = c.d_model, .out = c.d_model}} {}

 protected:
  Tensor forward(const Tensor& x, Context& context) override {  // (...,C) -> (...,C)
    return my_part(linear_(x, context));
  }

 private:
  Linear linear_;
};

}  // namespace

void register_my_part() {
  add_part<FeedForwardKind, MyPart, MyPartConfig>("my_part");
  // One row per kind of input: shapes that broadcast, values near a special case. `composed` is the same
  // function of other ops, with which results and gradients are compared.
  add_op_case({.op = "my_part",
               .inputs = {{Input::normal, Shape{3, 4}}},
               .call = [](const std::vector<Tensor>& in) { return my_part(in[0]); },
               .composed = [](const std::vector<Tensor>& in) { return pow(in[0], 3); }});
}

}  // namespace bonsai
