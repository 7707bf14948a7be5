// What an optimizer does to parameters. One of your own is one file: elementwise.h, if every element is
// updated by itself; otherwise a class that derives from UpdateRule, as in muon.cpp.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "bonsai/framework/backend/kernels.h"
#include "bonsai/framework/config/registry.h"
#include "bonsai/framework/core/parameter.h"

namespace bonsai {

// A tensor of state per parameter, which begins as zeros and is saved in checkpoints.
struct Slot {
  std::string name;
  Shape shape;
};

// What is updated at once: several parameters that lie end to end, as one row of elements, or one parameter
// in its shape. The gradients are still to be multiplied by the state's factor.
struct UpdateTarget {
  Tensor values, gradients;
  std::vector<Tensor> slots;  // in the order of UpdateRule::slots()
  double weight_decay = 0;
  double rate_scale = 1;  // of the step's learning rate
};

class UpdateRule {
 public:
  virtual ~UpdateRule() = default;
  virtual std::vector<Slot> slots(const Parameter& p) const = 0;
  virtual double weight_decay() const = 0;  // of parameters that decay
  virtual bool runs_on(Device) const { return true; }
  // What the rule computes from the number of the step, which counts from 1.
  virtual std::array<double, 2> by_step(int64_t) const { return {1, 1}; }

  // Whether the parameter's elements are updated independently, together with those of its neighbours.
  virtual bool elementwise(const Parameter&) const { return true; }
  // The update of elements. The state is in the device's memory; nothing may change if it is not finite.
  virtual void update_elements(UpdateTarget&, const kernel::StepState*) const {}
  // The update of a parameter that is not elementwise. The state is finite.
  virtual void update_parameter(UpdateTarget&, const kernel::StepState&) const {}
};

void register_trainer_parts();  // written by CMake

struct OptimizerKind {
  static constexpr const char *name = "optimizer", *standard = "adamw";
  using Make = std::unique_ptr<UpdateRule>();
  static void register_all() { register_trainer_parts(); }
};

// Settings of the parameters whose path matches a pattern.
struct ParameterGroup {
  std::string match;
  double weight_decay = -1;
  double rate_scale = 1;
  template <class V>
  void visit(V& v) {
    v("match", match,
      "pattern of parameter paths, in which * is any text; the first group that matches counts");
    v("weight_decay", weight_decay, "weight decay of all of them; -1 leaves the optimizer's",
      between(-1, 100));
    v("rate_scale", rate_scale, "factor of the learning rate; 0 leaves them as they are", between(0, 1000));
  }
};

struct OptimizerConfig {
  Choice<OptimizerKind> kind = {};
  double clip_norm = 1;
  std::vector<ParameterGroup> groups = {};
  template <class V>
  void visit(V& v) {
    v.part(kind, "how gradients change parameters");
    v("clip_norm", clip_norm, "largest norm of the mean gradient; 0 does not clip", at_least(0));
    v.list("groups", groups, "settings by parameter");
  }
};

// Whether the text is the pattern, in which * stands for any text.
bool matches(const std::string& pattern, const std::string& text);

}  // namespace bonsai
