// Optimizers that update each element independently. A new one is a struct of keys and a struct with the
// formula:
//
//   struct SignKeys {
//     double weight_decay = 0;
//     template <class V>
//     void visit(V& v) { v("weight_decay", weight_decay, "weight decay of matrices", at_least(0)); }
//   };
//   struct Sign {
//     static std::vector<std::string> slots() { return {"mean"}; }
//     template <class T>
//     static T apply(T value, T gradient, T* slots, const kernel::StepNumbers& step, const SignKeys& keys);
//   };
//   void register_sign() { add_part<OptimizerKind, Elementwise<Sign, SignKeys>, SignKeys>("sign"); }
//
// apply returns the new value and changes the slots in place. The learning rate is step.learning_rate. apply
// must also apply keys.weight_decay, which is 0 for parameters that do not decay. It is compiled only for the
// CPU. Bonsai's own optimizers have kernels for both devices (backend/updates.h), which the struct names as
// `kKernel`.
#pragma once

#include "bonsai/framework/autograd/dispatch.h"
#include "bonsai/framework/core/parallel.h"
#include "bonsai/trainers/optimizer/rule.h"

namespace bonsai {

template <class Formula, class Keys>
class Elementwise : public UpdateRule {
 public:
  explicit Elementwise(const Keys& keys) : keys_(keys) {}

  std::vector<Slot> slots(const Parameter& p) const override {
    std::vector<Slot> all;
    for (const std::string& name : Formula::slots()) all.push_back({name, p.value.shape()});
    return all;
  }
  double weight_decay() const override { return keys_.weight_decay; }
  bool runs_on(Device device) const override { return kHasKernel || device.type == Device::cpu; }
  std::array<double, 2> by_step(int64_t step) const override {
    if constexpr (requires { Formula::by_step(keys_, step); }) return Formula::by_step(keys_, step);
    return UpdateRule::by_step(step);
  }

  void update_elements(UpdateTarget& t, const kernel::StepState* state) const override {
    Keys keys = keys_;
    keys.weight_decay = t.weight_decay;
    if constexpr (kHasKernel) {
      kernel::Slots slots;
      for (size_t i = 0; i < t.slots.size(); ++i) slots.slot[i] = mut(t.slots[i]);
      (kernels(t.values).*Formula::kKernel)(view(t.gradients), keys, t.rate_scale, state, mut(t.values),
                                            slots);
    } else if (state->finite) {
      t.values.dtype() == DType::f64 ? apply_to<double>(t, keys, *state) : apply_to<float>(t, keys, *state);
    }
  }

 private:
  static constexpr bool kHasKernel = requires { Formula::kKernel; };

  template <class T>
  static void apply_to(UpdateTarget& target, const Keys& keys, const kernel::StepState& state) {
    constexpr int64_t kTile = 8192;
    const int64_t n = target.values.elements();
    const auto gradients = target.gradients.span<T>();
    const auto values = target.values.mutable_span<T>();
    std::vector<std::span<T>> slots;
    for (Tensor& slot : target.slots) slots.push_back(slot.mutable_span<T>());
    kernel::StepNumbers step = state;
    step.learning_rate *= target.rate_scale;
    const T factor = static_cast<T>(state.factor);
    run_tiles((n + kTile - 1) / kTile, [&](int64_t tile) {
      std::vector<T> slot(slots.size());
      for (auto i = static_cast<size_t>(tile * kTile);
           i < static_cast<size_t>(std::min(n, (tile + 1) * kTile)); ++i) {
        for (size_t k = 0; k < slots.size(); ++k) slot[k] = slots[k][i];
        values[i] = Formula::apply(values[i], gradients[i] * factor, slot.data(), step, keys);
        for (size_t k = 0; k < slots.size(); ++k) slots[k][i] = slot[k];
      }
    });
  }

  Keys keys_;
};

}  // namespace bonsai
