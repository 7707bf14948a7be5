// 200 training steps against PyTorch: the same initial weights, with the trainer's own batches, clipping,
// schedule and AdamW. An error in any of them grows with the steps.
#include "bonsai/framework/ops/ops.h"
#include "bonsai/layers/pretrained.h"
#include "bonsai/tests/fixture.h"
#include "bonsai/trainers/optimizer/adamw.h"
#include "bonsai/trainers/trainer.h"

namespace bonsai::test {
namespace {

// The sanitizers are ten times as slow and check the code, not the numbers, so few steps are enough.
#if defined(__SANITIZE_ADDRESS__)
constexpr int64_t kMaxSteps = 10;
#else
constexpr int64_t kMaxSteps = 1000000;
#endif

// The recorded tokens in windows that begin at the recorded positions.
class Recorded final : public Task {
 public:
  Recorded(const Tensor& tokens, Tensor starts, const ModelConfig& model)
      : starts_(std::move(starts)),
        batcher_("recorded", {tokens.span<int32_t>().begin(), tokens.span<int32_t>().end()}, model.block_size,
                 model.vocab_size),
        vocab_size_(model.vocab_size) {}

  std::string name() const override { return "recorded"; }
  void visit(Visitor&) override {}
  void prepare(int64_t, uint64_t, std::shared_ptr<Tokenizer>) override {}
  int64_t vocab_size() const override { return vocab_size_; }
  std::shared_ptr<Tokenizer> tokenizer() const override { return nullptr; }
  Batch batch(const BatchIndex& index, int64_t batch_size) const override {
    const auto row = starts_.span<int32_t>().subspan(static_cast<size_t>(index.step * batch_size),
                                                     static_cast<size_t>(batch_size));
    return batcher_.at(std::vector<int64_t>(row.begin(), row.end()));
  }
  Evaluation evaluate(Model&, int64_t, int64_t, const Poll&) const override { return {}; }
  std::string sample(Model&, uint64_t, const Poll&) const override { return {}; }

 private:
  Tensor starts_;
  Batcher batcher_;
  int64_t vocab_size_;
};

double number(const Fixture& f, const std::string& key) {
  const std::string text = f.setting(key);
  double value = NAN;
  EXPECT_NO_THROW(value = std::stod(text)) << "the file has no " << key;
  return value;
}

RunConfig recorded_run(Fixture& f, const HuggingFaceDirectory& init, DType dtype) {
  RunConfig run;
  run.task = "recorded";
  run.model = transformer_config(init);
  EXPECT_EQ(run.model.block_size, number(f, "block_size"));
  run.data = std::make_shared<Recorded>(f.read("in.tokens", DType::i32), f.read("in.offsets", DType::i32),
                                        run.model);
  run.trainer.max_steps = static_cast<int64_t>(number(f, "steps"));
  run.trainer.batch_size = static_cast<int64_t>(number(f, "batch_size"));
  run.trainer.dtype = name_of(dtype);
  run.optimizer = {.kind = AdamWConfig({.beta_1 = number(f, "beta1"),
                                        .beta_2 = number(f, "beta2"),
                                        .eps = number(f, "eps"),
                                        .weight_decay = number(f, "weight_decay")}),
                   .clip_norm = number(f, "clip_norm")};
  run.schedule = {.kind = "cosine",
                  .learning_rate = number(f, "lr_max"),
                  .min_learning_rate = number(f, "lr_min"),
                  .warmup_steps = static_cast<int64_t>(number(f, "warmup"))};
  return run;
}

// PyTorch's float32 run rounds in another order, so it is no reference for a float64 run; it is a second
// reference for our float32 run.
void expect_series(Fixture& f, const std::string& name, const std::vector<double>& series, DType dtype) {
  const Tensor got = tensor({static_cast<int64_t>(series.size())}, series, DType::f64);
  for (const std::string reference : {"float64", "float32"}) {
    const Tensor expected = slice(f.read(name + "_" + reference, DType::f64), 0, 0, got.elements());
    const double error = relative_error(got, expected);
    const std::string label = fmt::format("{} {} against {}", name.substr(4), name_of(dtype), reference);
    fmt::print("{:<30} {:.2e}\n", label, error);
    EXPECT_LE(error, reference == "float64" ? tolerance_of(dtype) : tolerance_of(DType::f32)) << label;
  }
}

void replay(DType dtype) {
  Fixture f("trajectory/expected");
  const HuggingFaceDirectory init(fixtures() / "trajectory/init");
  Trainer trainer(recorded_run(f, init, dtype));
  load_weights(init, dynamic_cast<Transformer&>(trainer.model()));
  std::vector<double> losses, norms;
  for (int64_t step = 0; step < std::min(kMaxSteps, trainer.config().trainer.max_steps); ++step) {
    const StepResult result = trainer.step(step);
    losses.push_back(result.loss);
    norms.push_back(result.gradient_norm);
  }
  expect_series(f, "out.loss", losses, dtype);
  expect_series(f, "out.grad_norm", norms, dtype);
  expect_all_read(f, "trajectory/expected");
}

TEST(FixtureTrajectory, EveryStepInDoubleIsPyTorchs) { replay(DType::f64); }
TEST(FixtureTrajectory, EveryStepInSingleIsPyTorchs) { replay(DType::f32); }

}  // namespace
}  // namespace bonsai::test
