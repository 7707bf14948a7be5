// The data and the scores of tasks. With a wrong target, or a validation set that overlaps the training set,
// a run looks healthy but learns the wrong function.
#include "bonsai/data/tales.h"
#include "bonsai/framework/ops/ops.h"
#include "bonsai/layers/model/transformer.h"
#include "bonsai/tests/training.h"

namespace bonsai::test {
namespace {

constexpr const char* kModel = "model: {n_layers: 1, n_heads: 1, d_model: 8, init_std: 0.5, block_size: ";

RunConfig task_run(const std::string& text) {
  RunConfig config = load_run(ConfigFile::from_text(text, "task.yaml"));
  prepare_data(config);
  return config;
}

std::vector<int32_t> ids_of(const Tensor& x) { return {x.span<int32_t>().begin(), x.span<int32_t>().end()}; }

// Each row of a batch as text: the inputs and the last target.
std::vector<std::string> rows_of(const Batch& batch, const Tokenizer& tokenizer) {
  std::vector<std::string> rows;
  for (int64_t r = 0; r < batch.inputs.size(0); ++r) {
    std::vector<int32_t> ids = ids_of(slice(batch.inputs, 0, r, r + 1));
    ids.push_back(ids_of(slice(batch.targets, 0, r, r + 1)).back());
    rows.push_back(tokenizer.decode(ids));
  }
  return rows;
}

// The mean loss over the blocks of a text.
double loss_over(Model& model, const Tokenizer& tokenizer, const std::string& text) {
  const Batcher batcher("text", tokenizer.encode(text), model.block_size(), tokenizer.vocab_size());
  double sum = 0;
  int64_t tokens = 0;
  for (int64_t i = 0; i < batcher.evaluation_batches(4); ++i) {
    Context context;
    const LossSum loss = loss_of(model, batcher.evaluation(i, 4), context);
    sum += loss.sum.item(), tokens += loss.tokens;
  }
  return sum / static_cast<double>(tokens);
}

TEST(LanguageModel, TrainsOnOneStreamOfTalesAndIsValidatedOnAnother) {
  const RunConfig config = task_run(std::string(kModel) + "16}\n"
                                    "data: {characters: 3000, seed: 5, validation_fraction: 0.2}\n");
  const Tokenizer& tokenizer = *config.data->tokenizer();
  const std::string train = tales(5, "train", 3000), validation = tales(5, "validation", 600);
  for (const std::string& row : rows_of(config.data->batch({.seed = 1, .step = 2}, 50), tokenizer))
    EXPECT_NE(train.find(row), std::string::npos) << row;
  Trainer trainer(config);
  const double loss = config.data->evaluate(trainer.model(), 4, 0).loss;
  EXPECT_NEAR(loss, loss_over(trainer.model(), tokenizer, validation), 1e-5);
  EXPECT_GT(std::abs(loss - loss_over(trainer.model(), tokenizer, train.substr(0, validation.size()))), 1e-3)
      << "the two texts can be told apart by their loss";
}

TEST(LanguageModel, AFilesEndIsForValidationAndNeverTrained) {
  const Folder folder;
  const std::string head(900, 'a'), tail = "bcbbcbcccbbcbcbcbcbb";
  std::string text = head;
  for (int i = 0; i < 5; ++i) text += tail;
  write(folder / "text", text);
  const RunConfig config = task_run(std::string(kModel) + "8}\ndata: {source: file, path: " +
                                    (folder / "text").string() + ", validation_fraction: 0.1}\n");
  const Tokenizer& tokenizer = *config.data->tokenizer();
  for (const std::string& row : rows_of(config.data->batch({.seed = 1}, 200), tokenizer))
    EXPECT_EQ(row, std::string(9, 'a'));
  Trainer trainer(config);
  EXPECT_NEAR(config.data->evaluate(trainer.model(), 4, 0).loss,
              loss_over(trainer.model(), tokenizer, text.substr(900)), 1e-5);
}

TEST(Reverse, AsksForTheSymbolsBackwardsAfterTheBar) {
  const RunConfig config =
      task_run("task: reverse\n" + std::string(kModel) + "16}\ndata: {length: 5, alphabet: 7}\n");
  std::set<std::vector<int32_t>> seen;
  for (int64_t step = 0; step < 3; ++step)
    for (int64_t micro = 0; micro < 2; ++micro) {
      const Batch batch = config.data->batch({.seed = 1, .step = step, .micro_batch = micro}, 8);
      ASSERT_EQ(batch.inputs.shape(), (Shape{8, 10}));
      for (int64_t r = 0; r < 8; ++r) {
        const std::vector<int32_t> in = ids_of(slice(batch.inputs, 0, r, r + 1)),
                                   target = ids_of(slice(batch.targets, 0, r, r + 1));
        std::vector<int32_t> line(in.begin(), in.begin() + 5);
        EXPECT_TRUE(seen.insert(line).second) << "drawn twice";
        EXPECT_EQ(in[5], 7) << "the bar";
        const std::vector<int32_t> backwards(line.rbegin(), line.rend());
        EXPECT_EQ(std::vector(target.begin(), target.begin() + 5), std::vector<int32_t>(5, kIgnore));
        EXPECT_EQ(std::vector(target.begin() + 5, target.end()), backwards);
        EXPECT_TRUE(std::equal(in.begin() + 6, in.end(), backwards.begin())) << "what was written so far";
      }
    }
}

// The batch size changes neither the loss nor the exact match. The models are mostly right, because one that
// is never right would hide an answer compared with the wrong row.
TEST(Tasks, AnEvaluationDoesNotDependOnTheSizeOfItsBatches) {
  for (const std::string& text : std::vector<std::string>{
           "task: reverse\n" + std::string(kModel) +
               "8}\ndata: {length: 1, alphabet: 2, evaluation_sequences: 60}\n",
           "task: seq2seq\n" + std::string(kModel) +
               "8, n_encoder_layers: 1}\n"
               "data: {shortest: 1, longest: 1, alphabet: 2, evaluation_sequences: 60}\n",
           "task: induction\n" + std::string(kModel) +
               "20}\n"
               "data: {shortest: 4, longest: 10, vocabulary: 8, evaluation_sequences: 60}\n",
           std::string(kModel) + "8}\ndata: {characters: 3000}\n"}) {
    const RunConfig config = task_run(text + "schedule: {learning_rate: 0.02, warmup_steps: 1}\n");
    Trainer trainer(config);
    for (int64_t step = 0; step < 150; ++step) trainer.step(step);
    const Evaluation one = config.data->evaluate(trainer.model(), 1, 0);
    EXPECT_FALSE(one.exact_match < 0.6) << "more is right than the answer to any one row would be: " << text;
    for (const int64_t batch_size : {7, 64}) {
      const Evaluation many = config.data->evaluate(trainer.model(), batch_size, 0);
      EXPECT_NEAR(many.loss, one.loss, 1e-5) << text;
      EXPECT_TRUE(many.exact_match == one.exact_match || std::isnan(one.exact_match)) << text << batch_size;
    }
  }
}

// A model that always generates the same letter, or only the end token, is right as often as this is the
// answer.
TEST(Tasks, TheExactMatchIsTheShareOfRowsThatAreRight) {
  const auto constant = [](const std::string& text, int32_t token) {
    RunConfig config = task_run(text);
    transformer(config.model).tie_embeddings = false;
    Trainer trainer(config);
    // A final norm with weight 0 and bias 1 gives every position the same features.
    for (Parameter* p : trainer.arena().parameters())
      if (p->path == "norm.weight" || p->path == "norm.bias" || p->path == "head.weight")
        copy_into(full(p->value.shape(), p->path == "norm.bias" ? 1 : 0), p->value);
    Tensor row = trainer.model().parameter("head.weight").value.alias({8}, token * 8);
    copy_into(full({8}, 1), row);
    return config.data->evaluate(trainer.model(), 16, 0).exact_match;
  };
  const std::string reverse = "task: reverse\n" + std::string(kModel) +
                              "8}\ndata: {length: 1, alphabet: 2, evaluation_sequences: 400}\n";
  const double a = constant(reverse, 0), b = constant(reverse, 1);
  EXPECT_EQ(a + b, 1);
  EXPECT_NEAR(a, 0.5, 0.1);
  EXPECT_EQ(constant(reverse, 2), 0) << "the bar is no answer";
  const std::string pairs = "task: seq2seq\n" + std::string(kModel) + "8, n_encoder_layers: 1}\n"
                            "data: {shortest: 1, longest: 1, alphabet: 2, evaluation_sequences: 50}\n";
  EXPECT_EQ(constant(pairs, 0), 0) << "without an end sign";
}

TEST(Tasks, DropoutIsOffInEvaluationsAndSamples) {
  for (const std::string& text : std::vector<std::string>{
           "task: reverse\n" + std::string(kModel) +
               "8, dropout: DROPOUT}\ndata: {length: 4, alphabet: 4, evaluation_sequences: 20}\n",
           "task: seq2seq\n" + std::string(kModel) +
               "8, n_encoder_layers: 1, dropout: DROPOUT}\n"
               "data: {shortest: 3, longest: 5, alphabet: 4, evaluation_sequences: 20}\n",
           "task: induction\n" + std::string(kModel) +
               "20, dropout: DROPOUT}\n"
               "data: {shortest: 4, longest: 10, vocabulary: 8, evaluation_sequences: 20}\n",
           std::string(kModel) + "8, dropout: DROPOUT}\ndata: {characters: 3000}\n"}) {
    const auto with = [&](const std::string& dropout) {
      std::string all = text;
      const RunConfig config = task_run(all.replace(all.find("DROPOUT"), 7, dropout));
      Trainer trainer(config);
      const Evaluation e = config.data->evaluate(trainer.model(), 4, 0);
      return fmt::format("{} {} {}", e.loss, e.exact_match, config.data->sample(trainer.model(), 3));
    };
    EXPECT_EQ(with("0.5"), with("0")) << text;
  }
}

// Another seed, step, micro-batch or first row gives other rows.
TEST(Tasks, NoBatchIsDrawnTwice) {
  for (const std::string& text : std::vector<std::string>{
           "task: reverse\n" + std::string(kModel) + "24}\ndata: {length: 12, alphabet: 26}\n",
           "task: seq2seq\n" + std::string(kModel) +
               "24, n_encoder_layers: 1}\ndata: {shortest: 12, longest: 12, alphabet: 26}\n",
           "task: induction\n" + std::string(kModel) +
               "24}\n"
               "data: {shortest: 8, longest: 12, vocabulary: 50}\n",
           std::string(kModel) + "16}\ndata: {characters: 1000000, source: random, vocabulary: 60}\n"}) {
    const RunConfig config = task_run(text);
    std::set<std::vector<int32_t>> seen;
    size_t drawn = 0;
    const auto draw = [&](const BatchIndex& index) {
      const Batch batch = config.data->batch(index, 4);
      const Tensor& rows = batch.source ? batch.source : batch.inputs;
      for (int64_t r = 0; r < 4; ++r, ++drawn) seen.insert(ids_of(slice(rows, 0, r, r + 1)));
    };
    for (const uint64_t seed : {1, 2})
      for (const int64_t step : {0, 1, 7})
        for (const int64_t micro : {0, 1})
          for (const int64_t first : {0, 4})
            draw({.seed = seed, .step = step, .micro_batch = micro, .first_row = first});
    EXPECT_EQ(seen.size(), drawn) << text;
    draw({.seed = 2, .step = 7, .micro_batch = 1, .first_row = 4});
    EXPECT_EQ(seen.size(), drawn - 4) << "a batch is a function of its index: " << text;
  }
}

}  // namespace
}  // namespace bonsai::test
