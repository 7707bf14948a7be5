// A parameter that no gradient reaches is never trained: the run reports it at its first step.
#include "bonsai/layers/model/transformer.h"
#include "bonsai/layers/registry.h"
#include "bonsai/tests/training.h"

namespace bonsai::test {
namespace {

// B66: a custom layer that detaches one parameter and never reads another.
struct DetachedConfig {
  int64_t d_model = 1;
  template <class V>
  void visit(V&) {}
};

class Detached final : public Layer {
 public:
  Detached(Module* parent, std::string name, const DetachedConfig& c)
      : Layer(parent, std::move(name)),
        used{this, "used", {.in = c.d_model, .out = c.d_model, .bias = false}},
        detached{this, "detached", {.in = c.d_model, .out = c.d_model, .bias = false}},
        unread{this, "unread", {.in = c.d_model, .out = c.d_model, .bias = false}} {}
  Linear used, detached, unread;

 protected:
  Tensor forward(const Tensor& x, Context& context) override {
    return add(used(x, context), detached(x, context).detach());
  }
};

std::string warnings_of(const TinyRun& run, const std::filesystem::path& folder, bool resume) {
  testing::internal::CaptureStderr();
  run.train(folder, resume);
  return testing::internal::GetCapturedStderr();
}

TEST(Unreached, TheFirstStepNamesParametersThatNoGradientReaches) {
  add_part<FeedForwardKind, Detached, DetachedConfig>("detached");
  const Folder folder;
  const std::string warning = "no gradient reaches block.0.mlp.detached.weight, block.0.mlp.unread.weight; ";
  const auto settings = [](int steps) {
    return std::vector<std::string>{"model.mlp=detached", "schedule.warmup_steps=1",
                                    "trainer.max_steps=" + std::to_string(steps)};
  };
  for (const int steps : {2, 4})  // the second resumes the first
    EXPECT_TRUE(warnings_of(TinyRun(settings(steps)), folder / "run", steps == 4).starts_with(warning));
  EXPECT_EQ(warnings_of(TinyRun(settings(4)), folder / "run", true), "") << "no step is taken";
  EXPECT_EQ(warnings_of(TinyRun(), folder / "plain", false), "");
}

TEST(Unreached, AGradientReachesEveryParameterOfTheShippedConfigs) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(BONSAI_SOURCE_DIR "/configs")) {
    if (entry.path().extension() != ".yaml") continue;
    RunConfig config =
        load_run(ConfigFile(entry.path()), {"trainer.batch_size=1", "trainer.gradient_accumulation=1"});
    if (!config.data->file().empty()) config.data = TinyRun().config.data;
    if (config.task == "language_model") config.model.block_size = 8;
    transformer(config.model).n_layers = 1,
    transformer(config.model).d_model = 8 * transformer(config.model).n_heads;
    prepare_data(config);
    Trainer trainer(config);
    trainer.step(0);
    for (const Parameter* p : trainer.arena().parameters())
      EXPECT_GT(p->contributions, 0) << entry.path() << ": " << p->path;
  }
}

}  // namespace
}  // namespace bonsai::test
