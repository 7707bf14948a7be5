// Layers that are not position-wise. `mixing` sums earlier positions, as padding and segment ids allow, and
// declares that it is not position-wise; `mixing_undeclared` does not declare it; `numbered` adds the index
// of a position. adds up earlier positions, as padding and documents allow, and declares it;
// mixing_undeclared does not declare it; numbered adds the number of a position.
#include "bonsai/layers/linear.h"
#include "bonsai/layers/model/transformer.h"
#include "bonsai/layers/registry.h"

namespace bonsai {
namespace {

struct MixingConfig {
  int64_t d_model = 1;
  double gate = 1;
  bool later = false, by_length = false;
  template <class V>
  void visit(V& v) {
    v("gate", gate, "first factor of the sum", at_least(0));
    v("later", later, "whether later positions are added, too");
    v("by_length", by_length, "whether the sum is divided by the number of tokens of the pass");
  }
};

template <bool kDeclared>
class Mixing final : public Layer {
 public:
  Mixing(Module* parent, std::string name, const MixingConfig& c)
      : Layer(parent, std::move(name)), c_(c), up{this, "up", {.in = c.d_model, .out = c.d_model}} {
    gate = &add_parameter("gate", {1}, constant(c.gate), Decay::no);
  }
  bool position_wise() const override { return !kDeclared; }

 protected:
  Tensor forward(const Tensor& x, Context& context) override {  // (B,T,C) -> (B,T,C)
    const int64_t time = x.size(1);
    const auto id = [&](const Tensor& ids, int64_t row, int64_t t) {
      return ids.span<int32_t>()[static_cast<size_t>(row * time + t)];
    };
    std::vector<double> taken;
    for (int64_t row = 0; row < x.size(0); ++row)
      for (int64_t i = 0; i < time; ++i)
        for (int64_t j = 0; j < time; ++j) {
          const bool padding = context.padding_mask && id(context.padding_mask, row, j) == 0;
          const bool other =
              context.segment_ids && id(context.segment_ids, row, i) != id(context.segment_ids, row, j);
          const bool seen = (c_.later || j < i) && j != i && !padding && !other;
          taken.push_back(seen ? 1.0 / static_cast<double>(c_.by_length ? time : 1) : 0);
        }
    const Tensor sum = matmul(tensor({x.size(0), time, time}, taken, x.dtype()), x);
    return up(add(x, mul(sum, gate->value)), context);
  }

 private:
  MixingConfig c_;

 public:
  Linear up;
  Parameter* gate;
};

struct NumberedConfig {
  int64_t d_model = 1;
  bool by_context = true;
  template <class V>
  void visit(V& v) {
    v("by_context", by_context,
      "whether numbers begin with the context's first_position, or with 0 in each pass");
  }
};

class Numbered final : public Layer {
 public:
  Numbered(Module* parent, std::string name, const NumberedConfig& c)
      : Layer(parent, std::move(name)), c_(c), up{this, "up", {.in = c.d_model, .out = c.d_model}} {}

 protected:
  Tensor forward(const Tensor& x, Context& context) override {  // (B,T,C) -> (B,T,C)
    std::vector<double> numbers;
    for (int64_t t = 0; t < x.size(1); ++t)
      numbers.push_back(static_cast<double>(t + (c_.by_context ? context.first_position : 0)));
    return up(add(x, tensor({x.size(1), 1}, numbers, x.dtype())), context);
  }

 private:
  NumberedConfig c_;

 public:
  Linear up;
};

}  // namespace

void register_mixing() {
  add_part<FeedForwardKind, Mixing<true>, MixingConfig>("mixing");
  add_part<FeedForwardKind, Mixing<false>, MixingConfig>("mixing_undeclared");
  add_part<FeedForwardKind, Numbered, NumberedConfig>("numbered");
}

}  // namespace bonsai
