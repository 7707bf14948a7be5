// Muon: momentum orthogonalised by a Newton-Schulz iteration, for the hidden matrices of a model; AdamW for
// all other parameters.
//                                                  Jordan et al. 2024, kellerjordan.github.io/posts/muon
#include <cmath>

#include "bonsai/framework/autograd/fill.h"
#include "bonsai/framework/ops/ops.h"
#include "bonsai/trainers/optimizer/adamw.h"
#include "bonsai/trainers/optimizer/optimizer.h"

namespace bonsai {
namespace {

struct MuonConfig {
  double momentum = 0.95;
  bool nesterov = true;
  int64_t iterations = 5;
  std::string scale = "rms";
  std::string adamw = "token* position* *.token* *.position* head*";
  AdamWConfig rest;
  template <class V>
  void visit(V& v) {
    v("momentum", momentum, "decay of the mean of gradients", between(0, 0.999999999));
    v("nesterov", nesterov, "whether to use Nesterov momentum");
    v("iterations", iterations, "number of Newton-Schulz iterations", between(1, 100));
    v("scale", scale,
      "scale of a matrix's update: rms matches the size of AdamW's updates (Liu et al. 2025), spectral is "
      "sqrt(max(1, rows / columns))",
      OneOf{{"rms", "spectral"}});
    v("adamw", adamw, "path patterns of the matrices that AdamW updates, separated by spaces");
    rest.visit(v);
  }
};

// Iterates a quintic polynomial. The result has the same singular vectors, and singular values near 1.
Tensor orthogonal(Tensor x, int64_t iterations) {
  constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315, kSmallestNorm = 1e-7;
  const bool tall = x.size(0) > x.size(1);
  if (tall) x = permute(x, {1, 0});
  const Tensor least = full({}, kSmallestNorm, x.dtype(), x.device());
  x = div(x, maximum(sqrt(sum(mul(x, x))), least));
  for (int64_t i = 0; i < iterations; ++i) {
    const Tensor a = matmul(x, x, false, true), b = add(scale(a, kB), scale(matmul(a, a), kC));
    x = add(scale(x, kA), matmul(b, x));
  }
  return tall ? permute(x, {1, 0}) : x;
}

class Muon final : public UpdateRule {
 public:
  explicit Muon(const MuonConfig& keys) : keys_(keys), rest_(keys.rest) {}

  std::vector<Slot> slots(const Parameter& p) const override {
    return elementwise(p) ? rest_.slots(p) : std::vector<Slot>{{"momentum", p.value.shape()}};
  }
  double weight_decay() const override { return rest_.weight_decay(); }
  std::array<double, 2> by_step(int64_t step) const override { return rest_.by_step(step); }
  bool elementwise(const Parameter& p) const override {
    if (p.value.rank() != 2) return true;
    for (size_t begin = 0, end = 0; end != std::string::npos; begin = end + 1) {
      end = keys_.adamw.find(' ', begin);
      const std::string pattern = keys_.adamw.substr(begin, end == std::string::npos ? end : end - begin);
      if (!pattern.empty() && matches(pattern, p.path)) return true;
    }
    return false;
  }
  void update_elements(UpdateTarget& target, const kernel::StepState* state) const override {
    rest_.update_elements(target, state);
  }

  void update_parameter(UpdateTarget& t, const kernel::StepState& state) const override {
    const auto mix = [&](const Tensor& a, const Tensor& b, double share) {  // (1 - share) a + share b
      return add(scale(a, 1 - share), scale(b, share));
    };
    const Tensor g = scale(t.gradients, state.factor);
    copy_into(mix(t.slots[0], g, 1 - keys_.momentum), t.slots[0]);
    const Tensor mean = keys_.nesterov ? mix(g, t.slots[0], keys_.momentum) : t.slots[0];
    const auto rows = static_cast<double>(t.values.size(0)), columns = static_cast<double>(t.values.size(1));
    const double size = keys_.scale == "rms" ? 0.2 * std::sqrt(std::max(rows, columns))
                                             : std::sqrt(std::max(1.0, rows / columns));
    const double rate = state.learning_rate * t.rate_scale;
    copy_into(sub(scale(t.values, 1 - rate * t.weight_decay),
                  scale(orthogonal(mean, keys_.iterations), rate * size)),
              t.values);
  }

 private:
  MuonConfig keys_;
  AdamW rest_;
};

}  // namespace

void register_muon() { add_part<OptimizerKind, Muon, MuonConfig>("muon"); }

}  // namespace bonsai
