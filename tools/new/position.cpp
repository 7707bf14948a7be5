// my_part: positions. `position: my_part` in a config's model section selects them.
//
// These add a learned vector times the distance from the start. A Position may add to token vectors (forward,
// with is_added), turn queries and keys (turned), or change the scores (set_scores).
#include "bonsai/framework/ops/ops.h"
#include "bonsai/layers/registry.h"

namespace bonsai {
namespace {

struct MyPartConfig {
  // The model sets these.
  int64_t block_size = 1;
  int64_t width = 1;
  double init_std = kInitStd;
  template <class V>
  void visit(V&) {}  // keys of its own
};

class MyPart final : public Position {
 public:
  MyPart(Module* parent, std::string name, const MyPartConfig& c)
      : Position(parent, std::move(name)),
        block_size_(c.block_size),
        weight_(&add_parameter("weight", {1, c.width}, normal(c.init_std), Decay::yes)) {}
  bool is_added() const override { return true; }

 protected:
  Tensor forward(const Tensor& x, Context& context) override {  // (B,T,C) -> (B,T,C)
    std::vector<double> places;
    for (int64_t t = 0; t < x.size(1); ++t)
      places.push_back(static_cast<double>(context.first_position + t) / static_cast<double>(block_size_));
    return add(x, mul(tensor({x.size(1), 1}, places, x.dtype(), x.device()), weight_->value));
  }

 private:
  int64_t block_size_;
  Parameter* weight_;  // (1, width)
};

}  // namespace

void register_my_part() { add_part<PositionKind, MyPart, MyPartConfig>("my_part"); }

}  // namespace bonsai
