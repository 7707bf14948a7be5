// Encoder and decoder together: the data the task draws, what the model learns, what the cache stores, and
// that no position sees a target or another row's source.
#include <map>

#include "bonsai/framework/backend/backend.h"
#include "bonsai/framework/ops/ops.h"
#include "bonsai/layers/cache.h"
#include "bonsai/layers/model/transformer.h"
#include "bonsai/tests/training.h"
#include "bonsai/trainers/audit.h"
#include "bonsai/trainers/generate.h"
#include "bonsai/trainers/task/seq2seq.h"

namespace bonsai::test {
namespace {

// Small enough to be learned in seconds.
RunConfig small(const std::string& answer, const std::vector<std::string>& settings = {}) {
  ConfigFile file = ConfigFile::from_text(R"(task: seq2seq
model: {n_layers: 1, n_encoder_layers: 1, n_heads: 2, d_model: 32, block_size: 8}
data: {shortest: 5, longest: 6, alphabet: 12, evaluation_sequences: 200}
trainer: {max_steps: 700, batch_size: 64}
schedule: {learning_rate: 1e-2, min_learning_rate: 1e-4, warmup_steps: 50}
)",
                                          "small");
  file.set("data.answer=" + answer);
  for (const std::string& setting : settings) file.set(setting);
  RunConfig config = file.load<RunConfig>();
  prepare_data(config);
  return config;
}

std::vector<int32_t> row(const Tensor& x, int64_t r) {
  const auto all = x.span<int32_t>();
  return {all.begin() + r * x.size(1), all.begin() + (r + 1) * x.size(1)};
}

TEST(Seq2Seq, AsksForTheSourceSortedOrBackwardsAndAnEndSign) {
  for (const std::string answer : {"sort", "reverse"}) {
    const RunConfig config = small(answer, {"data.shortest=1", "data.longest=5", "data.alphabet=5"});
    const Batch batch = config.data->batch({.seed = 1}, 300);
    std::set<size_t> lengths;
    for (int64_t r = 0; r < 300; ++r) {
      std::vector<int32_t> source = row(batch.source, r), padding_mask = row(batch.source_padding_mask, r);
      const auto length = static_cast<size_t>(std::count(padding_mask.begin(), padding_mask.end(), 1));
      EXPECT_TRUE(std::is_sorted(padding_mask.rbegin(), padding_mask.rend())) << "padding is at the end";
      lengths.insert(length);
      source.resize(length);
      answer == "sort" ? std::sort(source.begin(), source.end()) : std::reverse(source.begin(), source.end());
      std::vector<int32_t> inputs = {5}, targets = source;  // 5 is the start token, 6 the end token
      inputs.insert(inputs.end(), source.begin(), source.end());
      targets.push_back(6);
      inputs.resize(6, 6), targets.resize(6, kIgnore);
      EXPECT_EQ(row(batch.inputs, r), inputs);
      EXPECT_EQ(row(batch.targets, r), targets);
    }
    EXPECT_EQ(lengths, (std::set<size_t>{1, 2, 3, 4, 5}));
  }
}

// If one random number gave both, sources of a length would begin with only the few letters of its part of
// [0, 1).
TEST(Seq2Seq, TheFirstLetterDoesNotFollowFromTheLength) {
  const RunConfig config = small("sort", {"data.shortest=2", "data.longest=7"});
  const Batch batch = config.data->batch({.seed = 1}, 1000);
  std::map<int64_t, std::set<int32_t>> first;
  for (int64_t r = 0; r < 1000; ++r) {
    const auto padding_mask = row(batch.source_padding_mask, r);
    first[std::count(padding_mask.begin(), padding_mask.end(), 1)].insert(row(batch.source, r)[0]);
  }
  EXPECT_EQ(first.size(), 6u);
  for (const auto& [length, letters] : first)
    EXPECT_EQ(letters.size(), 12u) << length << ": about 167 rows, 12 letters";
}

// At least nine tenths of the evaluated sequences do not occur in training, so memorization does not help.
TEST(Seq2Seq, BothAnswersAreLearnedToTheLastSequence) {
  for (const char* answer : {"sort", "reverse"}) {
    const RunConfig config = small(answer);
    std::set<std::vector<int32_t>> trained;
    for (int64_t step = 0; step < config.trainer.max_steps; ++step) {
      const Batch batch = config.data->batch(
          {.seed = static_cast<uint64_t>(config.trainer.seed), .step = step}, config.trainer.batch_size);
      for (int64_t r = 0; r < batch.source.size(0); ++r) trained.insert(row(batch.source, r));
    }
    const Batch evaluated = dynamic_cast<const Seq2Seq&>(*config.data).validation(0, 200);
    int64_t fresh = 0;
    for (int64_t r = 0; r < 200; ++r) fresh += !trained.contains(row(evaluated.source, r));
    EXPECT_GE(fresh, 180);

    Trainer trainer(config);
    const Evaluation before = trainer.config().data->evaluate(trainer.model(), 64, 0);
    EXPECT_LT(before.exact_match, 0.1);
    for (int64_t step = 0; step < trainer.config().trainer.max_steps; ++step) trainer.step(step);
    const Evaluation e = trainer.config().data->evaluate(trainer.model(), 64, 0);
    printf("%s: loss %.4f, exact match %.4f, %d of 200 sources new\n", answer, e.loss, e.exact_match,
           static_cast<int>(fresh));
    EXPECT_EQ(e.exact_match, 1) << answer;
  }
}

// A model with large weights, so that every dependence has a visible effect.
struct Model {
  explicit Model(const std::string& position = "learned", int64_t window = 0, DType dtype = DType::f32)
      : root({.dtype = dtype}),
        transformer(&root, "",
                {.vocab_size = 9,
                 .block_size = 8,
                 .n_layers = 2,
                 .n_encoder_layers = 2,
                 .n_heads = 4,
                 .d_model = 16,
                 .attention = MultiHead{{.n_kv_heads = 2, .window = window}},
                 .position = position,
                 .init_std = 0.3}) {}
  Module root;
  Transformer transformer;
};

Tensor ids(const Shape& shape, uint64_t seed) {
  std::vector<double> v(static_cast<size_t>(shape.elements()));
  for (size_t i = 0; i < v.size(); ++i) v[i] = std::floor(9 * random_uniform(random_key(seed, "ids"), i));
  return tensor(shape, v, DType::i32);
}

// This test and the next use f64, so that rounding, which depends on the length of a row and on the BLAS,
// does not hide a leak through a mask.
TEST(EncoderDecoder, PaddingOfTheSourceChangesNothing) {
  for (const char* position : {"learned", "sinusoidal", "rope", "none"}) {
    Model m(position, 0, DType::f64);
    const Tensor target = ids({1, 5}, 1), source = ids({1, 7}, 2);
    Context padded, cut;
    padded.source = {.ids = source, .padding_mask = tensor({1, 7}, {1, 1, 1, 1, 0, 0, 0}, DType::i32)};
    cut.source = {.ids = slice(source, 1, 0, 4)};
    EXPECT_LE(relative_error(m.transformer(target, padded), m.transformer(target, cut)), 1e-13) << position;
    Context whole;
    whole.source = {.ids = source};
    EXPECT_GT(relative_error(m.transformer(target, whole), m.transformer(target, cut)), 1e-3)
        << "the source matters";
  }
}

// Two sources and two targets packed into one row give the same logits as each pair alone.
TEST(EncoderDecoder, DocumentsArePackedOnBothSides) {
  Model m("none", 0, DType::f64);
  const Tensor target = ids({1, 6}, 1), source = ids({1, 7}, 2);
  Context packed;
  packed.segment_ids = tensor({1, 6}, {0, 0, 0, 0, 1, 1}, DType::i32);
  packed.source = {.ids = source, .segment_ids = tensor({1, 7}, {0, 0, 1, 1, 1, 1, 1}, DType::i32)};
  const Tensor both = m.transformer(target, packed);
  Context first, second;
  first.source.ids = slice(source, 1, 0, 2), second.source.ids = slice(source, 1, 2, 7);
  EXPECT_LE(relative_error(slice(both, 1, 0, 4), m.transformer(slice(target, 1, 0, 4), first)), 1e-13);
  EXPECT_LE(relative_error(slice(both, 1, 4, 6), m.transformer(slice(target, 1, 4, 6), second)), 1e-13);
  packed.source.segment_ids = {};
  EXPECT_NE(
      error_of([&] { m.transformer(target, packed); }).find("documents are given for queries or keys alone"),
      std::string::npos);
}

TEST(EncoderDecoder, EverySplitThroughTheCacheGivesTheLogitsOfTheFullForward) {
  for (const char* position : {"learned", "rope", "none"}) {
    Model m(position);
    const Tensor target = ids({2, 8}, 1);
    Context whole;
    whole.source = {.ids = ids({2, 7}, 2),
                    .padding_mask = tensor({2, 7}, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0}, DType::i32)};
    const Tensor full = m.transformer(target, whole);
    for (const auto& splits : std::vector<std::vector<int64_t>>{{1, 1, 1, 1, 1, 1, 1, 1}, {5, 3}, {8}}) {
      KeyValueCache cache(8);
      Context context = whole;
      context.source.features = m.transformer.encode(context);
      context.cache = &cache;
      for (const int64_t n : splits) {
        const int64_t at = context.first_position = cache.length();
        const Tensor part = m.transformer(slice(target, 1, at, at + n), context);
        EXPECT_LE(relative_error(part, slice(full, 1, at, at + n)), 1e-5) << position << " from " << at;
      }
      EXPECT_EQ(cache.length(), 8);
    }
  }
}

// A cleared cache must not keep the first source.
TEST(EncoderDecoder, AClearedCacheReadsTheNextSource) {
  Model m;
  const Tensor target = ids({1, 6}, 1);
  KeyValueCache cache(8);
  for (const uint64_t seed : {2, 3}) {
    Context whole{.source = {.ids = ids({1, 5}, seed)}};
    Context cached = whole;
    cached.source.features = m.transformer.encode(cached), cached.cache = &cache;
    EXPECT_LE(relative_error(m.transformer(target, cached), m.transformer(target, whole)), 1e-5)
        << "source " << seed;
    cache.clear();
  }
}

TEST(EncoderDecoder, GreedyRowsAreThoseOfEachAlone) {
  Model m;
  const Tensor start = ids({3, 2}, 1), source = ids({3, 5}, 2);
  const auto together = greedy(m.transformer, start, 6, {.ids = source});
  for (int64_t r = 0; r < 3; ++r) {
    std::vector<int32_t> all = row(start, r);
    const auto alone =
        generate(m.transformer, all, 6, {.temperature = 0}, {}, {.ids = slice(source, 0, r, r + 1)});
    all.insert(all.end(), together[static_cast<size_t>(r)].begin(), together[static_cast<size_t>(r)].end());
    EXPECT_EQ(alone, all);
  }
}

TEST(EncoderDecoder, GreedyTextIsThatOfTheFullForward) {
  for (const char* position : {"learned", "sinusoidal", "rope", "rope_interleaved", "none"})
    for (const int64_t window : {0, 2}) {
      Model m(position, window);
      const Source source{.ids = ids({1, 5}, 2)};
      for (const int64_t prompt : {1, 5, 8, 10}) {  // 8 fills the block, 10 exceeds it
        const std::vector<int32_t> start = row(ids({1, prompt}, 3), 0);
        std::vector<int32_t> plain = start;
        for (int i = 0; i < 8; ++i) {
          Context context{.source = source};
          const auto seen = std::min<int64_t>(8, static_cast<int64_t>(plain.size()));
          const auto logits =
              m.transformer(from<int32_t>({1, seen}, std::vector<int32_t>(plain.end() - seen, plain.end())),
                        context)
                  .values();
          plain.push_back(choose_token(std::span(logits).last(9), {.temperature = 0}, 0));
        }
        EXPECT_EQ(generate(m.transformer, start, 8, {.temperature = 0}, {}, source), plain)
            << position << " window " << window << " prompt of " << prompt;
      }
    }
}

TEST(EncoderDecoder, GreedySaysAtOnceWhatItCannotWrite) {
  Model m;
  const Source source{.ids = ids({1, 3}, 2)};
  EXPECT_EQ(greedy(m.transformer, ids({1, 3}, 1), 6, source)[0].size(), 6u) << "the last is not read";
  EXPECT_EQ(error_of([&] {
              greedy(m.transformer, ids({1, 3}, 1), 7, source);
            }),
            "[greedy] 7 tokens after 3 do not fit block_size 8");
  EXPECT_EQ(error_of([&] {
              greedy(m.transformer, ids({1, 0}, 1), 2, source);
            }),
            "[greedy] needs rows of at least one token to begin with, got i32(1,0)");
}

TEST(EncoderDecoder, TheAuditPassesForEveryPositionAndFindsAMaskThatIsLeftOut) {
  TransformerConfig c{
      .vocab_size = 9, .block_size = 8, .n_layers = 2, .n_encoder_layers = 2, .n_heads = 2, .d_model = 8};
  for (const char* position : {"learned", "sinusoidal", "rope", "none"})
    for (const int64_t window : {0, 1, 3}) {
      c.position = position, c.attention = MultiHead{{.window = window}};
      const auto reports = audit_model("model", c, DType::f32, AuditExtent::all);
      EXPECT_EQ(reports.size(), 5u);  // the last two are of the feed-forward layer and of passes
      EXPECT_TRUE(passed(reports)) << text(reports);
    }
  static const auto forward = kernels(Device{}, DType::f32).attention.run;
  static const auto backward = kernels(Device{}, DType::f32).attention_backward.run;
  static void (*change)(kernel::Attention&);
  const auto leak = [&](void (*planted)(kernel::Attention&)) {
    change = planted;
    const ScopedKernels plant({}, DType::f32, [](KernelTable& kernels) {
      kernels.attention.run = [](const kernel::Attention& a) {
        kernel::Attention other = a;
        change(other);
        forward(other);
      };
      kernels.attention_backward.run = [](const kernel::Attention& a, const kernel::AttentionGradients& d) {
        kernel::Attention other = a;
        change(other);
        backward(other, d);
      };
    });
    return text(audit_model("model", c, DType::f32, AuditExtent::quick));
  };
  c.attention = {};
  EXPECT_NE(leak([](kernel::Attention& a) { a.causal = false; }).find("which comes later"),
            std::string::npos);
  EXPECT_NE(leak([](kernel::Attention& a) { a.padding_mask = nullptr; }).find("its encoder: LEAKS"),
            std::string::npos);
  const std::string segment_ids = leak([](kernel::Attention& a) { a.query_segment_ids = nullptr; });
  for (const char* part : {"model: LEAKS", "its encoder: LEAKS", "what it sees of a source: LEAKS"})
    EXPECT_NE(segment_ids.find(part), std::string::npos) << segment_ids;
}

TEST(EncoderDecoder, WhatDoesNotFitIsRefused) {
  Model m;
  Context context;
  EXPECT_NE(error_of([&] {
              m.transformer(ids({1, 3}, 1), context);
            }).find("needs context.source.ids"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              m.transformer.trunk(zeros({1, 3, 16}), context);
            }).find("source.features is undefined"),
            std::string::npos);
  Module root;
  Transformer alone{&root, "", {.vocab_size = 9, .n_layers = 1, .n_heads = 2, .d_model = 8}};
  for (const Source& source : {Source{.ids = ids({1, 3}, 1)}, Source{.features = zeros({1, 3, 8})}}) {
    Context given{.source = source};
    EXPECT_EQ(error_of([&] {
                alone(ids({1, 3}, 1), given);
              }),
              "[transformer] is given a source, but has no encoder; n_encoder_layers is 0");
  }
  context.source.ids = ids({1, 9}, 1);
  EXPECT_NE(error_of([&] {
              m.transformer(ids({1, 3}, 1), context);
            }).find("9 tokens from position 0 exceed block_size 8"),
            std::string::npos);
  const RunConfig config = small("sort");
  const Tokenizer& tokenizer = *config.data->tokenizer();
  EXPECT_EQ(config.data->prompt(tokenizer, "cabab").source.values(), (std::vector<double>{2, 0, 1, 0, 1}));
  for (const std::string text : {"caba", "cababab"})
    EXPECT_EQ(error_of([&] { config.data->prompt(tokenizer, text); }),
              fmt::format("[source] has {} letters; this task's have 5 to 6", text.size()));
  for (const std::string sign : {"|", "~"})
    EXPECT_EQ(error_of([&] { config.data->prompt(tokenizer, "ca" + sign); }),
              "[source] '" + sign + "' is a sign of the task, not one of the 12 letters");
  const auto refused = [](const std::string& setting, const std::string& yaml = "task: seq2seq\n") {
    ConfigFile file = ConfigFile::from_text(yaml, "x");
    for (const std::string& s : {std::string("model.n_encoder_layers=1"), setting}) file.set(s);
    return error_of([&] {
      RunConfig config = file.load<RunConfig>();
      prepare_data(config);
    });
  };
  EXPECT_EQ(refused("data.shortest=2"), "no error");
  EXPECT_NE(refused("model.n_encoder_layers=0").find("the task seq2seq has a source, which needs an encoder"),
            std::string::npos);
  EXPECT_NE(
      refused("model.n_layers=1", "task: reverse\n").find("the task reverse has no source for an encoder"),
      std::string::npos);
  EXPECT_NE(refused("data.shortest=11").find("data.shortest 11 is above data.longest 10"), std::string::npos);
  EXPECT_NE(refused("model.block_size=10").find("model.block_size 10 is not above data.longest 10"),
            std::string::npos);
}

}  // namespace
}  // namespace bonsai::test
