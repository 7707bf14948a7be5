// A custom implementation of the interface Model trains from a config, resumes, passes the audit and
// generates. A model that sees its future is refused.
#include "bonsai/layers/embedding.h"
#include "bonsai/layers/linear.h"
#include "bonsai/layers/model/model.h"
#include "bonsai/tests/training.h"
#include "bonsai/trainers/audit.h"
#include "bonsai/trainers/generate.h"

namespace bonsai::test {
namespace {

struct SumsConfig {
  int64_t vocab_size = 1, block_size = 1;
  int64_t width = 4;
  bool ahead = false;
  template <class V>
  void visit(V& v) {
    v("width", width, "of token vectors", at_least(1));
    v("ahead", ahead, "whether a position sees the next one");
  }
};

// Sums the embeddings of all tokens up to the current one.
class Sums final : public Model {
 public:
  Sums(Module* parent, std::string name, const SumsConfig& c)
      : Model(parent, std::move(name), {c.vocab_size, c.block_size}),
        ahead_(c.ahead),
        token_{this, "token", {.entries = c.vocab_size, .width = c.width, .init_std = 0.3}},
        head_{this, "head", {.in = c.width, .out = c.vocab_size, .init_std = 0.3}} {}
  Tensor embed(const Tensor& ids, Context& context) override { return token_(ids, context); }
  Tensor from_embedding(const Tensor& x, Context& context) override {
    return head_(ahead_ ? add(cumsum(x, 1), mean(x, 1, /*keep=*/true)) : cumsum(x, 1), context);
  }

 private:
  bool ahead_;
  Embedding token_;
  Linear head_;
};

void register_sums() {
  static const bool done = (add_part<ModelKind, Sums, SumsConfig>("sums"), true);
  static_cast<void>(done);
}

RunConfig run_of(const std::vector<std::string>& settings = {}) {
  register_sums();
  RunConfig config = load_run(ConfigFile::from_text(R"(
model: {kind: sums, block_size: 8, width: 6}
data: {source: tales, characters: 2000}
trainer: {max_steps: 8, batch_size: 2, eval_interval: 4, eval_batches: 2, checkpoint_interval: 4}
schedule: {kind: constant, warmup_steps: 0}
)",
                                                    "sums.yaml"),
                              settings);
  prepare_data(config);
  return config;
}

TEST(Model, OneOfOnesOwnTrainsAndResumesToTheSameBytes) {
  const Folder folder;
  const RunSummary whole = run_training(run_of(), {folder / "whole"}, false, true);
  EXPECT_EQ(whole.progress.step, 8);
  run_training(run_of({"trainer.max_steps=4"}), {folder / "parts"}, false, true);
  run_training(run_of(), {folder / "parts"}, true, true);
  const std::string last = "checkpoints/last/checkpoint.safetensors";
  EXPECT_EQ(contents(folder / "whole" / last), contents(folder / "parts" / last));
}

TEST(Model, TheAuditKnowsWhetherItLooksAhead) {
  const auto audit = [](const ModelConfig& model) {
    return audit_model("it", model, DType::f32, AuditExtent::all);
  };
  EXPECT_TRUE(passed(audit(run_of().model))) << text(audit(run_of().model));
  const std::string leaks = text(audit(run_of({"model.ahead=true"}).model));
  EXPECT_NE(leaks.find("comes later"), std::string::npos) << leaks;
}

TEST(Model, WritesByTheLastLogitsOfAllTokens) {
  const RunConfig config = run_of();
  Module root;
  const std::unique_ptr<Model> model = config.model.make(&root);
  std::vector<int32_t> ids = {3, 1};
  const std::vector<int32_t> written = generate(*model, ids, 9, {.temperature = 0});
  while (ids.size() < written.size()) {  // the model sees the last block_size tokens
    const std::vector<int32_t> seen(ids.end() - std::min<ptrdiff_t>(8, std::ssize(ids)), ids.end());
    Context context;
    const Tensor logits = (*model)(from<int32_t>({1, std::ssize(seen)}, seen), context);
    const Tensor last = slice(logits, 1, logits.size(1) - 1, logits.size(1));
    ids.push_back(argmax(reshape(last, {config.model.vocab_size}), 0).span<int32_t>()[0]);
  }
  EXPECT_EQ(written, ids);
}

TEST(Model, ParametersAreCountedWithoutMemoryForThem) {
  RunConfig config = run_of();
  Module root;
  const double elements = element_count(*config.model.make(&root));
  EXPECT_EQ(parameter_count(config.model), elements);
  config.model.vocab_size = 1'000'000'000;
  config.model.kind.as<SumsConfig>().width = 1'000'000;
  EXPECT_EQ(parameter_count(config.model), 2e15 + 1e9);
}

TEST(Model, ATaskWithASourceNeedsAModelThatReadsIt) {
  register_sums();
  RunConfig config =
      load_run(ConfigFile::from_text("task: seq2seq\nmodel: {kind: sums, block_size: 16}\n", "s.yaml"));
  prepare_data(config);
  EXPECT_EQ(error_of([&] { Trainer trainer(config); }),
            "[train] the task seq2seq has a source, but the model sums reads none; choose another of them");
}

}  // namespace
}  // namespace bonsai::test
