// Generation through a cache of keys and values: every split gives the full forward's logits, and the same text.
#include "framework/ops/ops.h"
#include "layers/cache.h"
#include "tests/training.h"
#include "trainers/generate.h"

namespace bonsai::test {
namespace {

// Trained for a moment, so that nothing is near zero.
struct Trained {
  explicit Trained(const std::vector<std::string>& settings)
      : run(with_block(settings)), trainer(run.config) {
    for (int64_t step = 0; step < 30; ++step) trainer.step(step);
  }
  static std::vector<std::string> with_block(std::vector<std::string> settings) {
    for (const char* more :
         {"model.block_size=16", "model.n_layers=2", "model.deviation=0.2", "model.n_heads=4"})
      settings.push_back(more);
    return settings;
  }
  Decoder& model() { return trainer.model(); }

  TinyRun run;
  Trainer trainer;
};

const std::vector<std::vector<std::string>> kModels = {
    {"model.position=learned"},
    {"model.position=sinusoidal", "model.norm=rms_norm"},
    {"model.position=none"},
    {"model.position=rope", "model.n_kv_heads=2", "model.qk_norm=true"},
    {"model.position=rope_interleaved", "model.soft_cap=3"},
    {"model.position=alibi", "model.n_kv_heads=1"},
    {"model.position=rope", "model.window=3", "model.mlp=swiglu"},
};

Tensor ids_of(const std::vector<int32_t>& ids) {
  return from<int32_t>({1, static_cast<int64_t>(ids.size())}, ids);
}

std::vector<int32_t> some_ids(int64_t count) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i)
    ids.push_back(static_cast<int32_t>(random_uniform(random_key(4, "ids"), static_cast<uint64_t>(i)) * 20));
  return ids;
}

TEST(Cache, EverySplitGivesTheLogitsOfTheFullForward) {  // B02
  for (const auto& settings : kModels) {
    Trained trained(settings);
    for (const auto& splits :
         std::vector<std::vector<int64_t>>{{1, 1, 1, 1, 1, 1, 1, 1}, {5, 3}, {8}, {16}, {15, 1}, {7, 1, 8}}) {
      int64_t total = 0;
      for (const int64_t n : splits) total += n;
      const std::vector<int32_t> ids = some_ids(total);
      Context whole;
      const Tensor full = trained.model()(ids_of(ids), whole);
      KeyValueCache cache(16);
      int64_t at = 0;
      for (const int64_t n : splits) {
        EXPECT_EQ(cache.length(), at);
        Context context;
        context.first_position = at, context.cache = &cache;
        const Tensor part = trained.model()(ids_of({ids.begin() + at, ids.begin() + at + n}), context);
        const auto expected = slice(full, 1, at, at + n).values(), got = part.values();
        for (size_t i = 0; i < got.size(); ++i)
          ASSERT_NEAR(got[i], expected[i], 1e-5) << settings[0] << " from " << at;
        at += n;
      }
    }
  }
}

TEST(Cache, GreedyTextIsThatOfTheFullForward) {
  for (const auto& settings : kModels) {
    Trained trained(settings);
    for (const int64_t prompt : {1, 5, 16, 20}) {  // 16 fills the block, 20 is longer
      const std::vector<int32_t> start = some_ids(prompt);
      std::vector<int32_t> plain = start;
      for (int i = 0; i < 12; ++i) {
        Context context;
        const auto seen = std::min<int64_t>(16, static_cast<int64_t>(plain.size()));
        const auto logits = trained.model()(ids_of({plain.end() - seen, plain.end()}), context).values();
        plain.push_back(
            choose_token(std::span(logits).last(static_cast<size_t>(trained.model().config().vocab_size)),
                         {.temperature = 0}, 0));
      }
      EXPECT_EQ(generate(trained.model(), start, 12, {.temperature = 0}), plain)
          << settings[0] << " prompt of " << prompt;
    }
  }
}

TEST(Cache, RefusesWhatWouldGoWrongLater) {
  KeyValueCache cache(4);
  const Tensor two = zeros({1, 2, 6});
  cache.append("a", two, two);
  EXPECT_EQ(cache.length(), 2);
  EXPECT_NE(error_of([&] {
              cache.append("a", zeros({1, 3, 6}), zeros({1, 3, 6}));
            }).find("exceed its capacity of 4"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              cache.append("a", zeros({2, 1, 6}), zeros({2, 1, 6}));
            }).find("does not continue"),
            std::string::npos);
  {
    Tape tape;
    EXPECT_NE(error_of([&] { cache.append("a", two, two); }).find("while a tape records"), std::string::npos);
  }
  cache.clear();
  EXPECT_EQ(cache.length(), 0);
  EXPECT_EQ(cache.append("a", zeros({3, 1, 6}), zeros({3, 1, 6})).first.shape(), (Shape{3, 1, 6}));
}

TEST(Sampling, TopPAndMinPKeepTheMostLikely) {
  const std::vector<double> logits = {std::log(0.5), std::log(0.3), std::log(0.15), std::log(0.05)};
  const auto drawn = [&](const GenerateOptions& o) {
    std::vector<int> count(4);
    for (uint64_t i = 0; i < 2000; ++i) ++count[static_cast<size_t>(choose_token(logits, o, i))];
    return count;
  };
  EXPECT_EQ(drawn({.top_p = 0.5}), (std::vector<int>{2000, 0, 0, 0}));
  const auto most = drawn({.top_p = 0.79});
  EXPECT_NEAR(most[0], 1250, 100);
  EXPECT_EQ(most[2] + most[3], 0);
  const auto at_least = drawn({.min_p = 0.2});  // a fifth of 0.5
  EXPECT_GT(at_least[2], 0);
  EXPECT_EQ(at_least[3], 0);
  EXPECT_EQ(drawn({.min_p = 1}), (std::vector<int>{2000, 0, 0, 0}));
  EXPECT_EQ(drawn({.top_k = 100000}), drawn({}));
  const auto all = drawn({});
  EXPECT_NEAR(all[3], 100, 40);
  for (const double p : {0.0, -0.1, 1.1, std::nan("")})
    EXPECT_NE(error_of([&] { choose_token(logits, {.top_p = p}, 0); }), "no error");
  for (const double p : {-0.1, 1.1, std::nan("")})
    EXPECT_NE(error_of([&] { choose_token(logits, {.min_p = p}, 0); }), "no error");
}

}  // namespace
}  // namespace bonsai::test
