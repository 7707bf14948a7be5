// Compares every optimizer with PyTorch or with the formulas of its paper in NumPy
// (fixtures/optimizers/make.py). Checks settings by parameter, a custom optimizer and a resumed run of each.
#include "bonsai/framework/autograd/fill.h"
#include "bonsai/tests/fixture.h"
#include "bonsai/tests/folder.h"
#include "bonsai/tests/training.h"
#include "bonsai/trainers/optimizer/elementwise.h"
#include "bonsai/trainers/optimizer/optimizer.h"

namespace bonsai::test {
namespace {

OptimizerConfig config_of(const std::string& yaml) {
  return ConfigFile::from_text(yaml, "optimizer.yaml").load<OptimizerConfig>();
}

struct Parameters {
  explicit Parameters(const std::map<std::string, Tensor>& start) {
    for (const auto& [name, value] : start)
      owned.push_back(std::make_unique<Parameter>(name, value.copy(), /*decay=*/!name.ends_with("bias")));
  }
  std::vector<Parameter*> all() const {
    std::vector<Parameter*> pointers;
    for (const auto& p : owned) pointers.push_back(p.get());
    return pointers;
  }
  std::vector<std::unique_ptr<Parameter>> owned;
};

constexpr const char* kNames[] = {"block.0.bias", "block.0.weight", "block.1.weight", "token.weight"};

TEST(Optimizers, TenStepsAgreeWithPyTorchOrThePaper) {
  Fixture f("optimizers/steps");
  std::map<std::string, Tensor> start, gradients;
  for (const std::string name : kNames) {
    start[name] = f.read("start." + name, DType::f64);
    gradients[name] = f.read("gradients." + name, DType::f64);
  }
  const std::map<std::string, std::string> configs = {
      {"adam", "{kind: adam, weight_decay: 0.1, clip_norm: 0}"},
      {"adamw", "{clip_norm: 0}"},
      {"sgd", "{kind: sgd, weight_decay: 0.1, clip_norm: 0}"},
      {"sgd_nesterov", "{kind: sgd, nesterov: true, weight_decay: 0.1, clip_norm: 0}"},
      {"sgd_plain", "{kind: sgd, momentum: 0, clip_norm: 0}"},
      {"lion", "{kind: lion, weight_decay: 0.1, clip_norm: 0}"},
      {"muon", "{kind: muon, clip_norm: 0}"},
      {"muon_spectral", "{kind: muon, scale: spectral, nesterov: false, clip_norm: 0}"},
      {"adafactor", "{kind: adafactor, weight_decay: 0.1, clip_norm: 0}"}};
  for (const auto& [run, yaml] : configs) {
    Parameters parameters(start);
    ParameterArena arena(parameters.all());
    Optimizer optimizer(arena, config_of(yaml));
    for (int64_t step = 0; step < 10; ++step) {
      for (Parameter* p : arena.parameters()) {
        copy_into(reshape(slice(gradients[p->path], 0, step, step + 1), p->value.shape()), p->grad);
        p->contributions = 1;
      }
      EXPECT_TRUE(optimizer.step(step, 0.01, 1).finite);
    }
    for (Parameter* p : arena.parameters()) f.expect(run + "." + p->path, p->value.detach(), DType::f64);
  }
  EXPECT_TRUE(f.unread().empty()) << *f.unread().begin();
}

TEST(Optimizers, PatternsOfPathsHaveStars) {
  for (const auto& [pattern, text] : {std::pair{"*", ""},
                                      {"*.norm*", "block.0.norm.weight"},
                                      {"a*b*c", "a.b.b.c"},
                                      {"head.weight", "head.weight"},
                                      {"**", "x"},
                                      {"*bias", "bias.bias"}})
    EXPECT_TRUE(matches(pattern, text)) << pattern << " " << text;
  for (const auto& [pattern, text] :
       {std::pair{"", "x"}, {"*.norm", "block.0.norm.weight"}, {"a*b", "a.b.c"}, {"head", "head.weight"}})
    EXPECT_FALSE(matches(pattern, text)) << pattern << " " << text;
}

// The values after one step with gradients of 0, which shows the effect of weight decay.
std::map<std::string, double> decayed(const std::string& yaml) {
  std::map<std::string, Tensor> start;
  for (const char* name : kNames) start[name] = full({2, 2}, 1, DType::f64);
  Parameters parameters(start);
  ParameterArena arena(parameters.all());
  Optimizer(arena, config_of(yaml)).step(0, 0.1, 1);
  std::map<std::string, double> values;
  for (Parameter* p : arena.parameters()) values[p->path] = p->value.values()[3];
  return values;
}

TEST(Optimizers, GroupsSetDecayAndRateOfTheParametersThatMatch) {
  const std::map<std::string, double> none = decayed("{weight_decay: 0.5}"), some = decayed(R"(
weight_decay: 0.5
groups:
  - {match: block.1.*, weight_decay: 0}
  - {match: "block.*", weight_decay: 1}
  - match: token.weight
    rate_scale: 0.5
)");
  EXPECT_DOUBLE_EQ(none.at("block.0.weight"), 0.95);
  EXPECT_DOUBLE_EQ(none.at("block.0.bias"), 1);
  EXPECT_DOUBLE_EQ(some.at("block.1.weight"), 1) << "the first group that matches counts";
  EXPECT_DOUBLE_EQ(some.at("block.0.weight"), 0.9);
  EXPECT_DOUBLE_EQ(some.at("block.0.bias"), 0.9) << "a group's decay is that of all of its parameters";
  EXPECT_DOUBLE_EQ(some.at("token.weight"), 0.975);
  EXPECT_EQ(
      error_of([] { decayed("groups: [{match: \"*.nrom*\", weight_decay: 0}]"); }),
      "[optimizer] no parameter matches '*.nrom*' of optimizer.groups; bonsai inspect lists the parameters");
}

// Sign descent, as a user would write it.
struct SignKeys {
  double weight_decay = 0;
  template <class V>
  void visit(V& v) {
    v("weight_decay", weight_decay, "decay of matrices", at_least(0));
  }
};
struct Sign {
  static std::vector<std::string> slots() { return {"steps", "last", "before"}; }
  template <class T>
  static T apply(T value, T gradient, T* slots, const kernel::StepNumbers& step, const SignKeys& keys) {
    slots[0] += 1, slots[2] = slots[1], slots[1] = gradient;
    const T rate = static_cast<T>(step.learning_rate);
    return value - rate * (static_cast<T>(gradient > 0) - static_cast<T>(gradient < 0)) -
           rate * static_cast<T>(keys.weight_decay) * value;
  }
};

TEST(Optimizers, OneOfOnesOwnIsAFormulaPerElement) {
  add_part<OptimizerKind, Elementwise<Sign, SignKeys>, SignKeys>("sign");
  for (const DType dtype : {DType::f32, DType::f64}) {
    const int64_t n = 20000;  // several tiles
    Parameters parameters({{"w", full({n}, 1, dtype)}});
    ParameterArena arena(parameters.all());
    Optimizer optimizer(arena, config_of("{kind: sign, weight_decay: 0.5, clip_norm: 0}"));
    Parameter& w = *parameters.owned[0];
    for (int64_t step = 0; step < 2; ++step) {
      copy_into(full({n}, 3 - 6.0 * static_cast<double>(step), dtype), w.grad);
      w.contributions = 1;
      optimizer.step(step, 0.25, 3);
    }
    for (const double v : w.value.values()) ASSERT_DOUBLE_EQ(v, (1 - 0.375) * 0.875 + 0.25);
    std::map<std::string, double> state;
    for (const auto& [name, tensor] : optimizer.tensors()) state[name] = tensor.values()[n - 1];
    EXPECT_EQ(state, (std::map<std::string, double>{
                         {"sign.steps.w", 2}, {"sign.last.w", -1}, {"sign.before.w", 1}}));
  }
}

TEST(Optimizers, StateIsCountedWithoutBuildingIt) {
  Parameters parameters(
      {{"block.0.weight", zeros({6, 4})}, {"block.0.bias", zeros({6})}, {"token.weight", zeros({3, 4})}});
  for (const auto& [kind, elements] : {std::pair{"adamw", 84}, {"sgd", 42}, {"muon", 60}, {"adafactor", 23}})
    EXPECT_EQ(state_elements({.kind = kind}, parameters.all()), elements) << kind;
}

TEST(Optimizers, EveryKindTrainsAndResumesToTheSameBits) {
  for (const std::string& kind : registry<OptimizerKind>().names()) {
    if (kind == "sign") continue;
    const Folder folder;
    TinyRun run;
    run.config.optimizer.kind = kind;
    Trainer whole(run.config), first(run.config), rest(run.config);
    for (int64_t step = 0; step < 4; ++step) whole.step(step);
    for (int64_t step = 0; step < 2; ++step) first.step(step);
    save_checkpoint(folder / "middle", first, {.step = 2});
    Checkpoint(folder / "middle").load(rest);
    for (int64_t step = 2; step < 4; ++step) rest.step(step);
    EXPECT_EQ(rest.arena().values().values(), whole.arena().values().values()) << kind;
    EXPECT_NE(first.arena().values().values(), whole.arena().values().values()) << kind;
    for (size_t i = 0; i < whole.optimizer().tensors().size(); ++i)
      EXPECT_EQ(rest.optimizer().tensors()[i].second.values(), whole.optimizer().tensors()[i].second.values())
          << kind;
  }
}

TEST(Optimizers, ACheckpointOfAnotherOptimizerIsRefused) {
  const Folder folder;
  TinyRun run;
  run.config.optimizer.kind = "lion";
  Trainer lion(run.config);
  save_checkpoint(folder / "lion", lion, {.step = 1});
  run.config.optimizer.kind = "adamw";
  Trainer adamw(run.config);
  const std::string error = error_of([&] { Checkpoint(folder / "lion").load(adamw); });
  EXPECT_NE(error.find("has no tensor adamw.m."), std::string::npos) << error;
}

}  // namespace
}  // namespace bonsai::test
