// Generation with a key/value cache: however the tokens are split into passes, the logits and the text equal
// those of one full forward pass.
#include <numeric>

#include "bonsai/framework/ops/ops.h"
#include "bonsai/layers/cache.h"
#include "bonsai/layers/model/transformer.h"
#include "bonsai/tests/training.h"
#include "bonsai/trainers/audit.h"
#include "bonsai/trainers/generate.h"

namespace bonsai {
void register_mixing();  // own/mixing.cpp
}

namespace bonsai::test {
namespace {

// A model after a few training steps, so that no weight is near zero.
struct Trained {
  explicit Trained(const std::vector<std::string>& settings, bool wide = false)
      : run(with_block(settings, wide)), trainer(run.config) {
    for (int64_t step = 0; step < 30; ++step) trainer.step(step);
  }
  static std::vector<std::string> with_block(std::vector<std::string> settings, bool wide) {
    settings.push_back(wide ? "trainer.dtype=f64" : "trainer.dtype=f32");
    for (const char* more :
         {"model.block_size=16", "model.n_layers=2", "model.init_std=0.2", "model.n_heads=4"})
      settings.push_back(more);
    return settings;
  }
  Model& model() { return trainer.model(); }

  TinyRun run;
  Trainer trainer;
};

const std::vector<std::vector<std::string>> kModels = {
    {"model.position=learned"},
    {"model.position=sinusoidal", "model.norm=rms_norm"},
    {"model.position=none"},
    {"model.position=rope", "model.attention.n_kv_heads=2", "model.attention.qk_norm=true"},
    {"model.position=rope_interleaved", "model.attention.logit_softcap=3"},
    {"model.position=alibi", "model.attention.n_kv_heads=1"},
    {"model.position=rope", "model.attention.window=3", "model.mlp=swiglu"},
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

// Compares passes through the cache, split as given and with the masks of the context, with one full pass.
void expect_full_forward(Model& model, const Tensor& ids, const std::vector<int64_t>& split,
                         double tolerance, const Context& said, const std::string& name) {
  Context whole = said;
  const Tensor full = model(ids, whole);
  KeyValueCache cache(16);
  int64_t at = 0;
  for (const int64_t n : split) {
    EXPECT_EQ(cache.length(), at);
    Context context = said;
    context.first_position = at, context.cache = &cache;
    if (said.padding_mask) context.padding_mask = slice(said.padding_mask, 1, 0, at + n);
    if (said.segment_ids) context.segment_ids = slice(said.segment_ids, 1, 0, at + n);
    expect_values(model(slice(ids, 1, at, at + n), context), slice(full, 1, at, at + n).values(), tolerance);
    ASSERT_FALSE(testing::Test::HasFailure()) << name << " from " << at;
    at += n;
  }
}

TEST(Cache, EverySplitGivesTheLogitsOfTheFullForward) {  // B02
  for (const auto& settings : kModels)
    for (const bool wide : {false, true}) {
      Trained trained(settings, wide);
      for (const std::vector<int64_t>& split : std::vector<std::vector<int64_t>>{
               {1, 1, 1, 1, 1, 1, 1, 1}, {5, 3}, {8}, {16}, {15, 1}, {7, 1, 8}}) {
        const Tensor ids = ids_of(some_ids(std::accumulate(split.begin(), split.end(), int64_t{0})));
        std::map<std::string, Tensor> weights;
        expect_full_forward(trained.model(), ids, split, wide ? 1e-12 : 1e-5, {}, settings[0]);
        expect_full_forward(trained.model(), ids, split, wide ? 1e-12 : 1e-5, {.weights = &weights},
                            settings[0]);
      }
    }
}

TEST(Cache, PaddingAndDocumentsHoldForCachedKeysToo) {
  const Tensor left_and_right = tensor({2, 8}, {0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0}, DType::i32),
               two_documents = tensor({2, 8}, {3, 3, 3, 3, 3, 3, 7, 7, 1, 1, 4, 4, 4, 4, 4, 4}, DType::i32),
               ids = reshape(ids_of(some_ids(16)), {2, 8});
  for (const auto& settings : kModels) {
    Trained trained(settings);
    Context nothing;
    const Tensor free = trained.model()(ids, nothing);
    for (const Context& said :
         {Context{.padding_mask = left_and_right}, Context{.segment_ids = two_documents},
          Context{.padding_mask = left_and_right, .segment_ids = two_documents}}) {
      Context whole = said;
      EXPECT_GT(relative_error(trained.model()(ids, whole), free), 1e-3) << settings[0];
      for (const std::vector<int64_t>& split :
           std::vector<std::vector<int64_t>>{{1, 1, 1, 1, 1, 1, 1, 1}, {5, 3}, {1, 7}, {8}})
        expect_full_forward(trained.model(), ids, split, 1e-5, said, settings[0]);
    }
  }
}

// A padded row in a batch gives the same logits as the row alone. Its positions may be shifted only if they
// are relative.
TEST(Cache, APaddedRowIsWhatItIsAlone) {
  for (const auto& settings : kModels) {
    const bool absolute = settings[0].ends_with("learned") || settings[0].ends_with("sinusoidal");
    Trained trained(settings);
    const std::vector<int32_t> ids = some_ids(8);
    for (const bool left : {false, true}) {
      if (left && absolute) continue;
      std::vector<double> padded(ids.begin(), ids.end()), padding_mask(8, 1);
      for (size_t i = 0; i < 3; ++i) padding_mask[left ? i : 7 - i] = 0, padded[left ? i : 7 - i] = 0;
      Context context{.padding_mask = tensor({1, 8}, padding_mask, DType::i32)}, alone;
      const Tensor all = trained.model()(tensor({1, 8}, padded, DType::i32), context);
      const int64_t from = left ? 3 : 0;
      expect_values(slice(all, 1, from, from + 5),
                    trained.model()(ids_of({ids.begin() + from, ids.begin() + from + 5}), alone).values(),
                    1e-5);
    }
  }
}

TEST(Cache, MasksOfTheNewTokensAloneAreRefused) {
  Trained trained({"model.position=rope"});
  KeyValueCache cache(16);
  Context first{.cache = &cache};
  trained.model()(ids_of(some_ids(5)), first);
  const Tensor three = tensor({1, 3}, {1, 1, 1}, DType::i32);
  for (Context next : {Context{.first_position = 5, .padding_mask = three, .cache = &cache},
                       Context{.first_position = 5, .segment_ids = three, .cache = &cache}}) {
    KeyValueCache copy = cache;
    next.cache = &copy;
    const std::string error = error_of([&] { trained.model()(ids_of(some_ids(3)), next); });
    EXPECT_NE(error.find("i32(1,8)"), std::string::npos) << error;
  }
}

// The ids and the 12 most likely next ones, each from a full forward pass over the window.
std::vector<int32_t> plain_text(Model& model, std::vector<int32_t> ids, const Source& source = {}) {
  for (int i = 0; i < 12; ++i) {
    Context context{.source = source};
    const auto seen = std::min<int64_t>(16, static_cast<int64_t>(ids.size()));
    const auto logits = model(ids_of({ids.end() - seen, ids.end()}), context).values();
    ids.push_back(
        choose_token(std::span(logits).last(static_cast<size_t>(model.vocab_size())), {.temperature = 0}, 0));
  }
  return ids;
}

TEST(Cache, GreedyTextIsThatOfTheFullForward) {
  for (const auto& settings : kModels) {
    Trained trained(settings);
    for (const int64_t prompt : {1, 5, 16, 20}) {  // 16 fills the block, 20 exceeds it
      const std::vector<int32_t> start = some_ids(prompt);
      EXPECT_EQ(generate(trained.model(), start, 12, {.temperature = 0}), plain_text(trained.model(), start))
          << settings[0] << " prompt of " << prompt;
    }
  }
}

TEST(Cache, ABatchIsItsRowsOneByOne) {
  for (const auto& settings : kModels) {
    Trained trained(settings);
    const std::vector<int32_t> all = some_ids(12);
    KeyValueCache cache(16);
    Tensor batch;
    for (const int64_t at : {0, 4, 5}) {
      Context context{.first_position = at, .cache = &cache};
      batch = trained.model().last_logits(slice(reshape(ids_of(all), {2, 6}), 1, at, at < 4 ? 4 : at + 1),
                                          context);
    }
    for (const int64_t row : {0, 1}) {
      Context alone;
      const std::vector<int32_t> ids(all.begin() + 6 * row, all.begin() + 6 * row + 6);
      EXPECT_LE(
          relative_error(slice(batch, 0, row, row + 1), trained.model().last_logits(ids_of(ids), alone)),
          1e-5)
          << settings[0];
    }
  }
}

// ---- B58: layers that are not position-wise

void register_mixing_once() {
  [[maybe_unused]] static const bool done = (register_mixing(), true);
}

std::string audit_of(const std::vector<std::string>& settings, AuditExtent extent = AuditExtent::quick) {
  register_mixing_once();
  const TinyRun run(settings);
  const auto reports = audit_model("it", run.config.model, run.config.trainer.type(), extent);
  return (passed(reports) ? "PASSED\n" : "") + text(reports);
}

void expect_in(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << part << " is not in:\n" << text;
}

TEST(PositionWise, EveryShippedKindOfModelPassesTheAuditOfItsPasses) {
  for (std::vector<std::string> settings : kModels)
    for (const char* dtype : {"trainer.dtype=f32", "trainer.dtype=f64"}) {
      settings.push_back(dtype);
      const std::string audit = audit_of(settings);
      expect_in(audit, "PASSED");
      expect_in(audit, "audit it, block.0.mlp by itself: passed (8 positions)\n");
      expect_in(audit,
                "audit it, passes with the key/value cache: passed (8 tokens, one and five per pass)\n");
    }
}

// Also found if the gate is 0 at first, so that the mixing has no effect yet.
TEST(PositionWise, ALayerThatMixesPositionsUndeclaredIsRefusedByAuditAndTraining) {
  const std::string mlp = "model.mlp=mixing_undeclared";
  for (const char* gate : {"1", "0"})
    for (const AuditExtent extent : {AuditExtent::quick, AuditExtent::all}) {
      const std::string audit = audit_of({mlp, std::string("model.mlp.gate=") + gate}, extent);
      expect_in(audit, "audit it: passed (");
      expect_in(audit, "audit it, block.0.mlp by itself: FAILED (8 positions)\n");
      expect_in(audit, "of 8 positions change outputs at other positions, that at 0 first\n");
      expect_in(
          audit,
          "if block.0.mlp is meant to, declare `bool position_wise() const override { return false; }`");
      expect_in(audit, "audit it, passes with the key/value cache: FAILED (");
    }
  const Folder folder;
  const std::string error = error_of([&] { TinyRun({mlp}).train(folder / "run"); });
  expect_in(error, "block.0.mlp by itself: FAILED");
  expect_in(error, "`bool position_wise() const override { return false; }`");
  EXPECT_FALSE(std::filesystem::exists(folder / "run"));
}

TEST(PositionWise, ADeclaredOneTrainsAndItsTextIsThatOfTheFullForward) {
  const std::vector<std::string> mixing = {"model.mlp=mixing"};
  const std::string audit = audit_of(mixing);
  expect_in(audit, "PASSED");
  expect_in(audit, "audit it, passes without the key/value cache: passed (8 tokens");
  const Folder folder;
  EXPECT_TRUE(std::isfinite(TinyRun(mixing).train(folder / "run").progress.best_loss));
  Trained trained(mixing);
  for (const int64_t prompt : {1, 5, 16, 20})
    EXPECT_EQ(generate(trained.model(), some_ids(prompt), 12, {.temperature = 0}),
              plain_text(trained.model(), some_ids(prompt)));
  const std::vector<int32_t> ids = some_ids(8);
  const auto rows = greedy(trained.model(), reshape(ids_of(ids), {2, 4}), 12);
  for (size_t r = 0; r < 2; ++r) {
    std::vector<int32_t> row(ids.begin() + 4 * static_cast<int64_t>(r),
                             ids.begin() + 4 * static_cast<int64_t>(r) + 4);
    const std::vector<int32_t> plain = plain_text(trained.model(), row);
    row.insert(row.end(), rows[r].begin(), rows[r].end());
    EXPECT_EQ(row, plain);
  }
  KeyValueCache cache(16);
  Context context{.cache = &cache};
  expect_in(error_of([&] { trained.model()(ids_of(ids), context); }),
            "[transformer] model.mlp mixing is not position-wise");
}

TEST(PositionWise, WithASourceTooTextIsThatOfTheFullForward) {
  register_mixing_once();
  for (const char* mlp : {"mixing", "numbered", "feed_forward"}) {
    Module root;
    Transformer model{&root,
                      "",
                      {.vocab_size = 20,
                       .block_size = 16,
                       .n_layers = 2,
                       .n_encoder_layers = 1,
                       .n_heads = 2,
                       .d_model = 8,
                       .mlp = mlp,
                       .init_std = 0.5}};
    const Source source{.ids = ids_of(some_ids(5))};
    EXPECT_EQ(generate(model, {3, 1}, 12, {.temperature = 0}, {}, source), plain_text(model, {3, 1}, source))
        << mlp;
    const auto reports = audit_model("it", model.config(), DType::f32, AuditExtent::quick);
    EXPECT_TRUE(passed(reports)) << text(reports);
    EXPECT_EQ(reports.size(), model.cacheable() ? 5u : 4u);
  }
}

// Faults of a layer that declares that it mixes positions, and of a position-wise layer.
TEST(PositionWise, SiblingsAreFoundByTheAudit) {
  expect_in(audit_of({"model.mlp=mixing", "model.mlp.later=true"}), "which comes later");
  const std::string length = audit_of({"model.mlp=mixing", "model.mlp.by_length=true"});
  expect_in(length, "audit it: passed (");
  expect_in(length,
            "passes without the key/value cache: FAILED (8 tokens, one and five per pass)\n  in passes of 1, "
            "the logits of the tokens from position 1 on differ by");
  expect_in(audit_of({"model.mlp=numbered"}), "PASSED");
  const std::string numbered = audit_of({"model.mlp=numbered", "model.mlp.by_context=false"});
  expect_in(numbered, "block.0.mlp by itself: passed");
  expect_in(numbered,
            "passes with the key/value cache: FAILED (8 tokens, one and five per pass)\n  in passes of 1, "
            "the logits of the tokens from position 1 on differ by");
  expect_in(numbered, "a layer must count positions from context.first_position");
}

// ---- Limits

TEST(Cache, NoTokensMoreAreThePromptAndNoPromptIsRefused) {
  Trained trained({"model.position=rope"});
  for (const int64_t prompt : {1, 16, 20})
    EXPECT_EQ(generate(trained.model(), some_ids(prompt), 0, {}), some_ids(prompt));
  EXPECT_NE(error_of([&] { generate(trained.model(), {}, 3, {}); }).find("at least one token"),
            std::string::npos);
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
  // top_p applies to the probabilities that top_k leaves, normalized: 0.5 / 0.8 exceeds 0.6.
  EXPECT_EQ(drawn({.top_k = 2, .top_p = 0.6}), (std::vector<int>{2000, 0, 0, 0}));
  EXPECT_NEAR(drawn({.top_k = 2, .top_p = 0.7})[0], 1250, 100);
  // top_p applies after the temperature: at 2 the likeliest token has probability 0.38, the first two 0.68.
  EXPECT_EQ(drawn({.temperature = 0.5, .top_p = 0.68}), (std::vector<int>{2000, 0, 0, 0}));
  EXPECT_GT(drawn({.temperature = 2, .top_p = 0.5})[1], 0);
  EXPECT_GT(drawn({.temperature = 2, .min_p = 0.5})[2], 0) << "the root of 0.3 of the likeliest";
  EXPECT_EQ(drawn({.temperature = 0.5, .min_p = 0.5}), (std::vector<int>{2000, 0, 0, 0}));
  const auto at_least = drawn({.min_p = 0.2});  // the threshold is a fifth of 0.5
  EXPECT_GT(at_least[2], 0);
  EXPECT_EQ(at_least[3], 0);
  EXPECT_EQ(drawn({.min_p = 1}), (std::vector<int>{2000, 0, 0, 0}));
  EXPECT_EQ(drawn({.top_k = 100000}), drawn({}));
  const auto all = drawn({});
  EXPECT_NEAR(all[3], 100, 40);
  for (const double p : {0.0, -0.1, 1.1, std::nan("")})
    EXPECT_NE(error_of([&] { choose_token(logits, {.top_p = p}, 0); }).find("top_p is"), std::string::npos);
  for (const double p : {-0.1, 1.1, std::nan("")})
    EXPECT_NE(error_of([&] { choose_token(logits, {.min_p = p}, 0); }).find("min_p is"), std::string::npos);
}

}  // namespace
}  // namespace bonsai::test
