// Adafactor: the second moment of a matrix (R,C) is factored into row and column means, so that its state has
// R + C elements. Updates are clipped by their root mean square (RMS) and scaled by the RMS of the parameter.
// Shazeer & Stern 2018, arXiv:1804.04235 (algorithms 4 and 5, without the first moment)
#include <cmath>

#include "bonsai/framework/autograd/fill.h"
#include "bonsai/framework/ops/ops.h"
#include "bonsai/trainers/optimizer/rule.h"

namespace bonsai {
namespace {

struct AdafactorConfig {
  double decay_exponent = 0.8;
  double clip_threshold = 1;
  double min_scale = 1e-3;
  double weight_decay = 0;
  template <class V>
  void visit(V& v) {
    v("decay_exponent", decay_exponent, "exponent e in the second moment's decay 1 - step^-e",
      between(0.01, 1));
    v("clip_threshold", clip_threshold,
      "maximum root mean square of an update, before the learning rate is applied", between(1e-3, 1000));
    v("min_scale", min_scale, "minimum of the parameter's root mean square, by which its update is scaled",
      between(0, 1));
    v("weight_decay", weight_decay, "weight decay of matrices; biases and norm gains do not decay",
      between(0, 100));
  }
};

constexpr double kSmallestSquare = 1e-30;  // added to squared gradients

Tensor root_mean_square(const Tensor& x) { return sqrt(mean(mul(x, x))); }

class Adafactor final : public UpdateRule {
 public:
  explicit Adafactor(const AdafactorConfig& keys) : keys_(keys) {}

  std::vector<Slot> slots(const Parameter& p) const override {
    Shape row = p.value.shape(), column = row;
    if (row.rank < 2) return {{"square", row}};
    row.dim[row.rank - 1] = 1, column.dim[row.rank - 2] = 1;
    return {{"row", row}, {"column", column}};
  }
  double weight_decay() const override { return keys_.weight_decay; }
  bool elementwise(const Parameter&) const override { return false; }
  std::array<double, 2> by_step(int64_t step) const override {
    return {std::pow(static_cast<double>(step), -keys_.decay_exponent), 1};
  }

  void update_parameter(UpdateTarget& t, const kernel::StepState& state) const override {
    const double rate = state.learning_rate * t.rate_scale, share = state.by_step[0];
    const auto constant = [&](double value) { return full({}, value, t.values.dtype(), t.values.device()); };
    const auto add_share = [&](Tensor& slot, const Tensor& now) {
      copy_into(add(scale(slot, 1 - share), scale(now, share)), slot);
    };
    const Tensor g = scale(t.gradients, state.factor), square = add(mul(g, g), constant(kSmallestSquare));
    Tensor second = t.slots[0];
    if (t.slots.size() == 2) {
      add_share(t.slots[0], mean(square, -1, /*keep=*/true));
      add_share(t.slots[1], mean(square, -2, /*keep=*/true));
      second = mul(div(t.slots[0], mean(t.slots[0], -2, /*keep=*/true)), t.slots[1]);
    } else {
      add_share(t.slots[0], square);
    }
    const Tensor update = div(g, sqrt(second));
    const Tensor clip = maximum(scale(root_mean_square(update), 1 / keys_.clip_threshold), constant(1));
    const Tensor size = scale(maximum(root_mean_square(t.values), constant(keys_.min_scale)), rate);
    copy_into(sub(scale(t.values, 1 - rate * t.weight_decay), mul(update, div(size, clip))), t.values);
  }

 private:
  AdafactorConfig keys_;
};

}  // namespace

void register_adafactor() { add_part<OptimizerKind, Adafactor, AdafactorConfig>("adafactor"); }

}  // namespace bonsai
