// One training step: AdamW, weight decay, clipping, gradient accumulation and errors; and the sampling of a
// token. The faults are known from other systems: a first update that is too small, norms that decay to 0, a
// mean of means.
#include <array>
#include <set>

#include "bonsai/framework/autograd/dispatch.h"
#include "bonsai/layers/model/transformer.h"
#include "bonsai/tests/support.h"
#include "bonsai/trainers/generate.h"
#include "bonsai/trainers/optimizer/adamw.h"
#include "bonsai/trainers/trainer.h"

namespace bonsai::test {
namespace {

constexpr int64_t kBlock = 16;

// Row r of a step has the same tokens however the rows are split into micro-batches. Only its first `counted`
// targets are not ignored.
class Rows : public Task {
 public:
  explicit Rows(std::function<int64_t(int64_t)> counted = [](int64_t) { return kBlock; })
      : counted_(std::move(counted)) {
    const RandomKey key = random_key(1, "rows");
    std::vector<int32_t> ids;
    for (uint64_t i = 0; i < 400; ++i) ids.push_back(static_cast<int32_t>(random_uniform(key, i) * 65));
    batcher_.emplace_back("rows", ids, kBlock, 65);
  }
  std::string name() const override { return "rows"; }
  void visit(Visitor&) override {}
  void prepare(int64_t, uint64_t, std::shared_ptr<Tokenizer>) override {}
  int64_t vocab_size() const override { return 65; }
  std::shared_ptr<Tokenizer> tokenizer() const override { return nullptr; }
  Batch batch(const BatchIndex& index, int64_t batch_size) const override {
    std::vector<int64_t> starts;
    for (int64_t r = 0; r < batch_size; ++r) starts.push_back((index.micro_batch * batch_size + r) * 37);
    Batch batch = batcher_[0].at(starts);
    const auto targets = batch.targets.mutable_span<int32_t>();
    for (int64_t r = 0; r < batch_size; ++r)
      for (int64_t t = counted_(index.micro_batch * batch_size + r); t < kBlock; ++t)
        targets[static_cast<size_t>(r * kBlock + t)] = kIgnore;
    return batch;
  }
  Evaluation evaluate(Model&, int64_t, int64_t, const Poll&) const override { return {}; }
  std::string sample(Model&, uint64_t, const Poll&) const override { return {}; }

 private:
  std::function<int64_t(int64_t)> counted_;
  std::vector<Batcher> batcher_;
};

RunConfig small_run(std::shared_ptr<Task> task = std::make_shared<Rows>()) {
  RunConfig run;
  run.task = "rows";
  run.data = std::move(task);
  run.model =
      TransformerConfig{.vocab_size = 65, .block_size = kBlock, .n_layers = 1, .n_heads = 2, .d_model = 16};
  run.trainer.batch_size = 2;
  return run;
}

// One weight and its first update.
struct OneWeight {
  OneWeight(DType dtype, double gradient, const OptimizerConfig& config, double value = 0)
      : weight("w", tensor({1}, {value}, dtype), true), arena({&weight}), optimizer(arena, config) {
    give(gradient);
  }
  void give(double gradient) {
    copy_into(tensor({1}, {gradient}, weight.grad.dtype()), weight.grad);
    weight.contributions = 1;
  }
  double state(const std::string& slot) const {
    for (const auto& [name, tensor] : optimizer.tensors())
      if (name == "adamw." + slot + ".w") return tensor.item();
    return NAN;
  }
  Parameter weight;
  ParameterArena arena;
  Optimizer optimizer;
};

TEST(Optimizer, FirstUpdateOfATinyGradientHasItsFullSize) {
  const OptimizerConfig config{
      .kind = AdamWConfig({.beta_1 = 0.9, .beta_2 = 0.999, .eps = 1e-8, .weight_decay = 0}), .clip_norm = 0};
  for (const DType dtype : {DType::f64, DType::f32})
    for (const auto& [gradient, update] :
         {std::pair{1e-8, 5e-4}, {1e-7, 9.0909090909e-4}, {1.0, 1e-3}, {0.0, 0.0}, {-1.0, -1e-3}})
      for (const int64_t tokens : {1, 10}) {
        OneWeight one(dtype, gradient * static_cast<double>(tokens), config);
        one.optimizer.step(0, 1e-3, tokens);
        EXPECT_NEAR(one.weight.value.item(), -update, 1e-6 * std::abs(update))
            << name_of(dtype) << " " << gradient;
      }
}

TEST(Optimizer, ClippingScalesTheMeanGradientByClipOverNormPlusEps) {
  const OptimizerConfig config{
      .kind = AdamWConfig({.beta_1 = 0.5, .beta_2 = 0.99, .eps = 1e-8, .weight_decay = 0.1})};
  OneWeight large(DType::f64, 30, config), small(DType::f64, 3, config);
  EXPECT_DOUBLE_EQ(large.optimizer.step(0, 1e-3, 10).gradient_norm, 3);  // the norm before clipping
  EXPECT_DOUBLE_EQ(large.state("m"), 0.5 * 3 / (3 + 1e-6));
  EXPECT_DOUBLE_EQ(small.optimizer.step(0, 1e-3, 10).gradient_norm, 0.3);
  EXPECT_DOUBLE_EQ(small.state("m"), 0.5 * 0.3);
}

TEST(Optimizer, AnInfiniteGradientChangesNothingNotEvenByDecay) {
  for (const double bad : {double{INFINITY}, -double{INFINITY}, std::nan("")}) {
    OneWeight one(DType::f32, 1, {}, 1.0);
    one.optimizer.step(0, 1e-3, 1);
    const double w = one.weight.value.item(), m = one.state("m"),
                 v = one.state("v");
    one.give(bad);
    EXPECT_FALSE(one.optimizer.step(1, 1e-3, 1).finite);
    EXPECT_EQ(one.weight.value.item(), w);
    EXPECT_EQ(one.state("m"), m);
    EXPECT_EQ(one.state("v"), v);
  }
}

// A layer with parameters whose weight decay does not follow from their rank.
struct TemperedConfig {
  int64_t d_model = 1;
  template <class V>
  void visit(V&) {}
};

class Tempered final : public Layer {
 public:
  Tempered(Module* parent, std::string name, const TemperedConfig& c) : Layer(parent, std::move(name)) {
    temperature = &add_parameter("temperature", {2, 1}, constant(1), Decay::no);
    filter = &add_parameter("filter", {c.d_model}, constant(1), Decay::yes);
  }
  Parameter *temperature, *filter;

 protected:
  Tensor forward(const Tensor& x, Context&) override {
    return mul(mul(x, filter->value), mean(temperature->value));
  }
};

TEST(Trainer, ALayerSaysWhichParametersDecayWhateverTheirRank) {  // B65
  add_part<FeedForwardKind, Tempered, TemperedConfig>("tempered");
  RunConfig run = small_run();
  transformer(run.model).mlp = "tempered";
  Trainer trainer(run);
  for (Parameter* p : trainer.arena().parameters()) copy_into(full(p->value.shape(), 1), p->value);
  trainer.arena().zero_gradients();
  trainer.optimizer().step(0, 1, 1);
  const auto first = [&](const char* path) { return trainer.model().parameter(path).value.values()[0]; };
  EXPECT_EQ(first("block.0.mlp.temperature"), 1);
  EXPECT_FLOAT_EQ(first("block.0.mlp.filter"), 1 - run.optimizer.kind.as<AdamWConfig>().weight_decay);
}

TEST(Trainer, DecayReachesMatricesOnceAndNeverBiasesOrNorms) {
  for (const bool tied : {true, false}) {
    RunConfig run = small_run();
    transformer(run.model).tie_embeddings = tied;
    run.trainer.dtype = "f64";
    Trainer trainer(run);
    for (Parameter* p : trainer.arena().parameters())
      copy_into(full(p->value.shape(), 1, DType::f64), p->value);
    for (int64_t step = 0; step < 1000; ++step) {
      trainer.arena().zero_gradients();
      trainer.optimizer().step(step, 1e-3, 1);
      if (step != 0 && step != 999) continue;
      for (Parameter* p : trainer.model().parameters()) {
        const bool vector = p->path.ends_with(".bias") || p->path.find("norm") != std::string::npos;
        const double expected = vector ? 1 : std::pow(0.9999, static_cast<double>(step + 1));
        for (const double v : p->value.values()) ASSERT_NEAR(v, expected, vector ? 0 : 1e-13) << p->path;
      }
    }
  }
}

TEST(Trainer, ATiedTableIsOneParameter) {
  RunConfig tied = small_run(), untied = small_run();
  transformer(untied.model).tie_embeddings = false;
  EXPECT_EQ(Trainer(tied).parameter_count() + 65 * 16, Trainer(untied).parameter_count());
}

// One step with learning rate 0 over `rows` rows in micro-batches of batch_size.
StepResult step_of(std::shared_ptr<Task> task, int64_t rows, int64_t batch_size, const std::string& dtype,
                   bool zeroed_head = false) {
  RunConfig run = small_run(std::move(task));
  transformer(run.model).tie_embeddings = false;
  run.trainer.batch_size = batch_size;
  run.trainer.gradient_accumulation = rows / batch_size;
  run.trainer.dtype = dtype;
  run.schedule.learning_rate = run.schedule.min_learning_rate = 0;
  Trainer trainer(run);
  Parameter& head = trainer.model().parameter("head.weight");
  if (zeroed_head) copy_into(zeros_like(head.value), head.value);
  return trainer.step(0);
}

TEST(Trainer, AccumulationChangesNeitherLossNorGradient) {
  for (const std::string dtype : {"f32", "f64"})
    for (const bool zeroed : {true, false}) {
      const StepResult whole = step_of(std::make_shared<Rows>(), 8, 8, dtype, zeroed);
      EXPECT_EQ(whole.tokens, 8 * kBlock);
      EXPECT_NEAR(whole.loss, 4.1743873, zeroed ? 1e-6 : 0.1);
      EXPECT_GT(whole.gradient_norm, 1e-3);
      for (const int64_t batch_size : {4, 2, 1}) {
        const StepResult parts = step_of(std::make_shared<Rows>(), 8, batch_size, dtype, zeroed);
        EXPECT_NEAR(parts.loss, whole.loss, 1e-6 * whole.loss) << batch_size;
        EXPECT_NEAR(parts.gradient_norm, whole.gradient_norm, 1e-6 * whole.gradient_norm) << batch_size;
        EXPECT_EQ(parts.tokens, whole.tokens);
      }
    }
}

TEST(Trainer, MicroBatchesWeighByTheTargetsThatCount) {
  const auto only = [](int64_t row, int64_t count) {
    return std::make_shared<Rows>([=](int64_t r) { return r == row ? count : 0; });
  };
  const StepResult one = step_of(only(0, 1), 2, 2, "f64"), nine = step_of(only(1, 9), 2, 2, "f64");
  const auto both = [](int64_t row) { return row == 0 ? int64_t{1} : int64_t{9}; };
  const StepResult whole = step_of(std::make_shared<Rows>(both), 2, 2, "f64");
  const StepResult parts = step_of(std::make_shared<Rows>(both), 2, 1, "f64");
  EXPECT_EQ(parts.tokens, 10);
  EXPECT_NEAR(parts.loss, (one.loss + 9 * nine.loss) / 10, 1e-12);
  EXPECT_GT(std::abs(parts.loss - (one.loss + nine.loss) / 2), 1e-3) << "the mean of means would pass";
  EXPECT_NEAR(parts.gradient_norm, whole.gradient_norm, 1e-12);
}

TEST(Trainer, AMicroBatchWithoutTargetsAddsNothing) {
  const auto third_empty = [](int64_t row) { return row == 2 ? int64_t{0} : kBlock; };
  const StepResult parts = step_of(std::make_shared<Rows>(third_empty), 4, 1, "f64");
  const StepResult whole = step_of(std::make_shared<Rows>(third_empty), 4, 4, "f64");
  EXPECT_EQ(parts.tokens, 3 * kBlock);
  EXPECT_NEAR(parts.loss, whole.loss, 1e-12);
  EXPECT_NEAR(parts.gradient_norm, whole.gradient_norm, 1e-12);
  const StepResult none = step_of(std::make_shared<Rows>([](int64_t) { return int64_t{0}; }), 4, 2, "f64");
  EXPECT_EQ(none.loss, 0);
  EXPECT_EQ(none.gradient_norm, 0);
}

TEST(Trainer, ALossThatIsNotFiniteStopsBeforeAnyWeightChanges) {
  for (const double bad : {double{INFINITY}, std::nan("")}) {
    Trainer trainer(small_run());
    for (int64_t step = 0; step < 3; ++step) trainer.step(step);
    Tensor& weight = trainer.model().parameter("block.0.attention.query.weight").value;
    Tensor one = weight.alias({1});
    copy_into(tensor({1}, {bad}), one);
    const auto state = [&] {
      std::vector<std::vector<double>> all;
      for (const auto& [name, tensor] : trainer.optimizer().tensors()) all.push_back(tensor.values());
      return all;
    };
    const auto before = state();
    const Tensor weights = trainer.arena().values().copy();
    const std::string error = error_of([&] { trainer.step(3); });
    EXPECT_TRUE(error.starts_with("[train] at step 4 the loss is ")) << error;
    EXPECT_NE(error.find("the gradient of token.weight is the first that is not finite"), std::string::npos)
        << error;
    EXPECT_EQ(state(), before);
    EXPECT_TRUE(same_bits(trainer.arena().values(), weights));
  }
}

// The same rows in every micro-batch of every step.
class SameRows final : public Rows {
 public:
  Batch batch(const BatchIndex& index, int64_t batch_size) const override {
    asked.push_back(
        {index.seed, static_cast<uint64_t>(index.step), static_cast<uint64_t>(index.micro_batch)});
    return Rows::batch({}, batch_size);
  }
  mutable std::vector<std::array<uint64_t, 3>> asked;
};

// The losses of steps 0, 1 and 2 with learning rate 0, which differ only by dropout.
std::vector<double> losses_under_dropout(int64_t gradient_accumulation, int64_t seed) {
  RunConfig run = small_run(std::make_shared<SameRows>());
  transformer(run.model).dropout = 0.5;
  run.trainer.gradient_accumulation = gradient_accumulation;
  run.trainer.seed = seed;
  run.schedule.learning_rate = run.schedule.min_learning_rate = 0;
  Trainer trainer(run);
  for (Parameter* p : trainer.arena().parameters())  // the same weights whatever the seed
    copy_into(random_tensor(p->value.shape(), DType::f32), p->value);
  std::vector<double> losses;
  for (const int64_t step : {0, 1, 2, 0}) losses.push_back(trainer.step(step).loss);
  EXPECT_EQ(losses[3], losses[0]) << "a step can be taken again";
  losses.pop_back();
  return losses;
}

TEST(Trainer, EveryStepAndMicroBatchDropsOtherElements) {
  std::set<double> all;
  for (const int64_t gradient_accumulation : {1, 2, 3})
    for (const int64_t seed : {1, 2})
      for (const double loss : losses_under_dropout(gradient_accumulation, seed)) all.insert(loss);
  // If dropout were equal in every micro-batch, the mean would not depend on their number.
  EXPECT_EQ(all.size(), 18u);
}

TEST(Trainer, AsksForEachMicroBatchByItsNumber) {
  const auto task = std::make_shared<SameRows>();
  RunConfig run = small_run(task);
  run.trainer.gradient_accumulation = 2;
  run.trainer.seed = 5;
  Trainer trainer(run);
  trainer.step(3), trainer.step(4);
  EXPECT_EQ(task->asked, (std::vector<std::array<uint64_t, 3>>{{5, 3, 0}, {5, 3, 1}, {5, 4, 0}, {5, 4, 1}}));
}

// A step stops if the sum of the losses overflows, or if only a gradient is not finite.
TEST(Trainer, ALossThatIsNotFiniteStopsTheStepThoughEveryGradientIs) {
  for (const float bad : {INFINITY, -INFINITY, NAN}) {
    static float planted;
    planted = bad;
    const ScopedKernels plant({}, DType::f32, [](KernelTable& table) {
      static const auto real = table.cross_entropy.run;
      table.cross_entropy.run = [](View logits, View target, const kernel::CrossEntropy& options,
                                   MutView loss, MutView stats, IndexError* index_error) {
        real(logits, target, options, loss, stats, index_error);
        loss.as<float>()[0] = planted;
      };
    });
    Trainer trainer(small_run());
    const Tensor before = trainer.arena().values().copy();
    const std::string error = error_of([&] { trainer.step(0); });
    EXPECT_NE(error.find("every gradient is finite"), std::string::npos) << error;
    EXPECT_TRUE(same_bits(trainer.arena().values(), before));
    for (const auto& [name, state] : trainer.optimizer().tensors())
      for (const double v : state.values()) ASSERT_EQ(v, 0) << name;
  }
}

// The error names the op that produced the first non-finite value, whether or not the value reaches the loss.
TEST(Trainer, TheFirstBadValueIsNamedWithItsLayer) {
  int calls = 0;
  static int* count = nullptr;
  count = &calls;
  // Plants infinity in the activation of the second block in the third step.
  const ScopedKernels plant({}, DType::f32, [](KernelTable& table) {
    static const auto real = table.gelu_tanh.run;
    table.gelu_tanh.run = [](View x, MutView y) {
      real(x, y);
      if (*count % 2 == 1 && *count >= 5) y.as<float>()[3] = INFINITY;
      ++*count;
    };
  });
  RunConfig run = small_run();
  transformer(run.model).n_layers = 2;
  for (const bool traced : {false, true}) {
    calls = 0;
    run.trainer.trace_nonfinite = traced;
    Trainer trainer(run);
    trainer.step(0), trainer.step(1);
    const std::string error = error_of([&] { trainer.step(2); });
    EXPECT_NE(error.find("first of all [gelu_tanh] in block.1.mlp made inf of f32("), std::string::npos)
        << error;
    EXPECT_NE(error.find("no weight was changed"), std::string::npos) << error;
  }
}

// With trace_nonfinite a step also stops for a value that reaches no loss and no gradient, here a logit of an
// ignored target.
TEST(Trainer, TraceNonfiniteStopsForAValueThatTheLossDoesNotShow) {
  const ScopedKernels plant({}, DType::f32, [](KernelTable& table) {
    static const auto real = table.gemm.run;
    table.gemm.run = [](const kernel::Gemm& g) {
      real(g);
      if (g.n == 65 && g.m % kBlock == 0) static_cast<float*>(g.c)[(g.m - 1) * g.ldc] = INFINITY;
    };
  });
  const auto error_with = [](bool traced) {
    RunConfig run = small_run();
    run.data = std::make_shared<Rows>([](int64_t) { return kBlock - 1; });
    run.trainer.trace_nonfinite = traced;
    Trainer trainer(run);
    return error_of([&] { trainer.step(0); });
  };
  EXPECT_EQ(error_with(false), "no error");
  EXPECT_NE(error_with(true).find("first of all [linear] made inf"), std::string::npos) << error_with(true);
}

TEST(Generate, TemperatureZeroTakesTheLikeliestTokenAndTheLowestOfEquals) {
  const std::vector<double> logits = {1, 3, 2}, tie = {3, 3, 1}, same = {5, 5, 5};
  for (const double temperature : {0.0, 1e-8, 1e-300})
    for (uint64_t i = 0; i < 20; ++i) {
      EXPECT_EQ(choose_token(logits, {.temperature = temperature}, i), 1);
      EXPECT_EQ(choose_token(tie, {.temperature = temperature}, i), 0);
      EXPECT_EQ(choose_token(same, {.temperature = temperature, .top_k = 2}, i), 0);
    }
  for (const double temperature : {-1.0, std::nan(""), double{INFINITY}})
    EXPECT_NE(
        error_of([&] { choose_token(logits, {.temperature = temperature}, 0); }).find("the temperature is"),
        std::string::npos);
  EXPECT_NE(error_of([&] { choose_token(logits, {.top_k = -1}, 0); }).find("top_k is -1"), std::string::npos);
}

TEST(Generate, TokensAreDrawnAsOftenAsTheirProbabilitySays) {
  const std::vector<double> logits = {0, std::log(3.0), std::log(6.0), -INFINITY, 1e3 - 1e3};
  std::vector<int> count(logits.size()), limited(logits.size());
  for (uint64_t i = 0; i < 11000; ++i) {
    ++count[static_cast<size_t>(choose_token(logits, {}, i))];
    ++limited[static_cast<size_t>(choose_token(logits, {.top_k = 2}, i))];
  }
  const std::vector<double> expected = {1000, 3000, 6000, 0, 1000};
  for (size_t i = 0; i < logits.size(); ++i)
    EXPECT_NEAR(count[i], expected[i], 5 * std::sqrt(expected[i])) << i;
  EXPECT_EQ(limited[0] + limited[3] + limited[4], 0);
  EXPECT_NEAR(limited[1], 11000 / 3.0, 300);
}

// With equal logits a token depends only on its random number.
TEST(Generate, EveryTokenHasARandomNumberOfItsOwn) {
  Module root;
  Transformer transformer{
      &root,
      "",
      {.vocab_size = 50, .block_size = 8, .n_layers = 1, .n_heads = 1, .d_model = 4, .init_std = 0}};
  std::vector<std::vector<int32_t>> texts;
  for (const uint64_t seed : {1, 2}) {
    texts.push_back(generate(transformer, {0}, 200, {.seed = seed}));  // shorter and longer than the block
    for (uint64_t i = 0; i < 200; ++i)
      EXPECT_EQ(texts.back()[i + 1], choose_token(std::vector<double>(50, 0.0), {.seed = seed}, i));
    EXPECT_GE(std::set<int32_t>(texts.back().begin(), texts.back().end()).size(), 45u);
    EXPECT_EQ(generate(transformer, {0}, 200, {.seed = seed}), texts.back());
  }
  EXPECT_NE(texts[0], texts[1]);
}

TEST(Generate, OnlyTheLastBlockOfALongTextIsSeen) {
  Module root;
  Transformer transformer{
      &root,
      "",
      {.vocab_size = 10, .block_size = 8, .n_layers = 1, .n_heads = 2, .d_model = 8, .init_std = 1}};
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < 20; ++i) prompt.push_back(i * 7 % 10);
  const auto last = [](const std::vector<int32_t>& ids, int64_t n) {
    return std::vector<int32_t>(ids.end() - n, ids.end());
  };
  for (const GenerateOptions& options : {GenerateOptions{.temperature = 0}, GenerateOptions{.seed = 3}}) {
    const auto whole = generate(transformer, prompt, 12, options),
               end = generate(transformer, last(prompt, 8), 12, options);
    EXPECT_EQ(last(whole, 20), end);
    EXPECT_EQ(generate(transformer, {1}, 50, options).size(), 51u);
    EXPECT_EQ(generate(transformer, last(prompt, 9), 1, options).size(), 10u);
  }
  EXPECT_NE(error_of([&] { generate(transformer, {}, 1, {}); }).find("at least one token"),
            std::string::npos);
  Context context;
  const std::string error = error_of([&] {
    transformer(tensor({1, 9}, std::vector<double>(9), DType::i32), context);
  });
  EXPECT_NE(error.find("9"), std::string::npos) << error;
  EXPECT_NE(error.find("8"), std::string::npos) << error;
}

}  // namespace
}  // namespace bonsai::test
