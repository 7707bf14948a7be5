// A whole toy model trains on the CUDA device as on the CPU; a step copies only a batch to the device and the
// step's numbers back.
#include <dlfcn.h>

#include "bonsai/layers/model/transformer.h"
#include "bonsai/tests/cuda/device.h"
#include "bonsai/tests/training.h"

namespace bonsai::test {
namespace {

RunConfig toy(const std::string& device, const std::vector<std::string>& more = {}) {
  std::vector<std::string> settings = {
      "device.type=" + device, "trainer.max_steps=30", "trainer.batch_size=4",  "model.d_model=32",
      "model.block_size=16",   "model.n_layers=2",     "data.characters=20000", "schedule.warmup_steps=3"};
  settings.insert(settings.end(), more.begin(), more.end());
  const char* elsewhere = std::getenv("BONSAI_SOURCE_DIR");  // set if the build was copied to another machine
  const std::filesystem::path source = elsewhere ? elsewhere : BONSAI_SOURCE_DIR;
  RunConfig config = load_run(ConfigFile(source / "configs/toy_decoder.yaml"), settings);
  prepare_data(config);
  return config;
}

struct Kind {
  const char* name;
  std::vector<std::string> settings;
};
const std::vector<Kind> kKinds = {
    {"as shipped", {}},
    {"with dropout, in micro-batches", {"model.dropout=0.2", "trainer.gradient_accumulation=2"}},
    {"in the shape of Llama",
     {"model.position=rope", "model.norm=rms_norm", "model.mlp=swiglu", "model.attention.n_kv_heads=2",
      "model.bias=false"}},
};

TEST(CudaTraining, ThirtyStepsHaveTheLossesOfTheCpu) {
  for (const Kind& kind : kKinds) {
    Trainer here(toy("cpu", kind.settings)), there(toy("cuda", kind.settings));
    double first = 0, last = 0;
    for (int64_t step = 0; step < 30; ++step) {
      const StepResult a = here.step(step), b = there.step(step);
      EXPECT_NEAR(b.loss, a.loss, 1e-5) << kind.name << " step " << step;
      EXPECT_NEAR(b.gradient_norm, a.gradient_norm, 1e-4 * a.gradient_norm) << kind.name << " step " << step;
      if (step == 0) first = b.loss;
      last = b.loss;
    }
    EXPECT_LT(last, 0.9 * first) << kind.name;
  }
}

// The values of all parameters after three steps with the same gradients.
std::vector<double> updated(const std::string& kind, DType dtype, Device device) {
  Parameter matrix("block.weight", random_tensor({7, 40}, dtype, 1).to(device), /*decay=*/true);
  Parameter bias("block.bias", random_tensor({300}, dtype, 2).to(device), /*decay=*/false);
  ParameterArena arena({&matrix, &bias});
  Optimizer optimizer(arena, {.kind = kind});
  for (int64_t step = 0; step < 3; ++step) {
    uint64_t seed = 3 + static_cast<uint64_t>(step);
    for (Parameter* p : arena.parameters()) {
      copy_into(random_tensor(p->value.shape(), dtype, seed += 10), p->grad);
      p->contributions = 1;
    }
    optimizer.step(step, 0.01, 2);
  }
  return arena.values().values();
}

TEST(CudaTraining, EveryOptimizerUpdatesAsOnTheCpu) {
  for (const std::string& kind : registry<OptimizerKind>().names())
    for (const auto& [dtype, tolerance] : {std::pair{DType::f32, 1e-5}, {DType::f64, 1e-12}}) {
      const std::vector<double> here = updated(kind, dtype, {}), there = updated(kind, dtype, kCuda);
      ASSERT_EQ(here.size(), there.size());
      for (size_t i = 0; i < here.size(); ++i)
        ASSERT_NEAR(there[i], here[i], tolerance) << kind << " " << name_of(dtype);
    }
}

TEST(CudaTraining, ALossThatIsNotFiniteChangesNoWeightThoughEveryGradientIsFinite) {
  Trainer trainer(toy("cuda"));
  const Tensor before = trainer.arena().values().to(Device{});
  for (const double bad : {double{INFINITY}, -double{INFINITY}, std::nan("")}) {
    trainer.arena().zero_gradients();
    trainer.optimizer().add_loss(tensor({}, {bad}).to(kCuda), true);
    EXPECT_FALSE(trainer.optimizer().step(0, 1e-3, 1).finite) << bad;
    EXPECT_TRUE(same_bits(trainer.arena().values().to(Device{}), before)) << bad;
  }
  trainer.optimizer().add_loss(tensor({}, {1}).to(kCuda), true);
  EXPECT_TRUE(trainer.optimizer().step(0, 1e-3, 1).finite);
}

TEST(CudaTraining, ARunThatWasSavedGoesOnAsOnTheCpu) {
  const Folder folder;
  const RunConfig config =
      toy("cuda", {"trainer.checkpoint_interval=5", "trainer.eval_interval=5", "trainer.max_steps=10",
                   "trainer.eval_batches=2", "trainer.sample_interval=0"});
  const RunSummary whole = run_training(config, {folder / "whole"}, false, true);
  EXPECT_EQ(whole.progress.step, 10);
  Trainer trainer(toy("cpu", {"trainer.max_steps=10"}));
  for (int64_t step = 0; step < 10; ++step) trainer.step(step);
  const Checkpoint checkpoint(folder / "whole");
  Module root;
  const std::unique_ptr<Model> model = checkpoint.config().model.make(&root);
  checkpoint.load_model(*model);
  const auto expected = trainer.model().parameters(), got = model->parameters();
  for (size_t i = 0; i < expected.size(); ++i) {
    // The softmax does not depend on a key's bias, so its gradient is rounding error.
    if (got[i]->path.ends_with("key.bias")) continue;
    EXPECT_LE(relative_error(got[i]->value, expected[i]->value), 1e-3) << got[i]->path;
  }
}

TEST(CudaTraining, AStepThatIsNotFiniteChangesNoWeight) {
  Trainer trainer(toy("cuda", {"schedule.learning_rate=1e-2"}));
  trainer.step(0);
  Parameter* p = trainer.arena().parameters().front();
  std::vector<double> values = p->value.values();
  values[0] = NAN;
  copy_into(tensor(p->value.shape(), values), p->value);
  const std::vector<double> others = trainer.arena().parameters().back()->value.values();
  EXPECT_NE(error_of([&] { trainer.step(1); }).find("no weight was changed"), std::string::npos);
  EXPECT_EQ(trainer.arena().parameters().back()->value.values(), others);
}

// Only the emulated device counts copies, launches and allocations.
TEST(CudaTraining, AStepCopiesABatchInAndItsNumbersOut) {
  for (const Kind& kind : kKinds) {
    SCOPED_TRACE(kind.name);
    Trainer trainer(toy("cuda", kind.settings));
    for (int64_t step = 0; step < 3; ++step) trainer.step(step);
    const char* path = std::getenv("BONSAI_CUDA_LIBRARY");
    void* library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    auto* counts =
        library ? reinterpret_cast<void (*)(int64_t*)>(dlsym(library, "bonsai_emulation_counts")) : nullptr;
    ASSERT_TRUE(counts || !path || std::string_view(path).find("emulated") == std::string_view::npos)
        << "an emulated device counts";
    if (!counts) GTEST_SKIP() << "the device does not count";
    int64_t before[6], after[6];
    counts(before);
    constexpr int64_t kSteps = 5;
    for (int64_t step = 3; step < 3 + kSteps; ++step) trainer.step(step);
    counts(after);
    const int64_t batches = kSteps * trainer.config().trainer.gradient_accumulation;
    EXPECT_EQ(after[0] - before[0], 2 * batches) << "copies in: inputs and targets";
    EXPECT_EQ(after[1] - before[1], kSteps) << "copies out: loss, norm and whether both are finite";
    EXPECT_EQ(after[2] - before[2], 0) << "copies on the device";
    EXPECT_EQ(after[4] - before[4], 0) << "allocations";
    printf("a step of the toy model launches %lld kernels, %s\n",
           static_cast<long long>((after[3] - before[3]) / kSteps), kind.name);
  }
}

}  // namespace
}  // namespace bonsai::test
