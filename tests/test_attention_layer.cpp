// Whole attention layers and decoders on the fused and the composed path: queries that see no key, shared
// key/value heads, and results when the weights are returned.
#include <numeric>

#include "bonsai/framework/core/memory.h"
#include "bonsai/framework/ops/ops.h"
#include "bonsai/layers/cache.h"
#include "bonsai/layers/model/transformer.h"
#include "bonsai/layers/position/rope.h"
#include "bonsai/tests/training.h"

namespace bonsai::test {
namespace {

using Weights = std::map<std::string, Tensor>;

// The tolerance is relative to the largest element. The gradient of a key's bias is rounding error alone.
void expect_near(const std::vector<Tensor>& got, const std::vector<Tensor>& right, double tolerance,
                 const std::string& what) {
  ASSERT_EQ(got.size(), right.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].shape(), right[i].shape()) << what << " tensor " << i;
    EXPECT_LE(largest(sub(got[i], right[i])), tolerance * std::max(1.0, largest(right[i])))
        << what << " tensor " << i;
  }
}

// Returns the output, then the gradients of sum(y * dy).
template <class F>
std::vector<Tensor> with_gradients(Module& model, const F& forward, const Tensor& dy) {
  for (Parameter* p : model.parameters()) p->zero_gradient();
  Tape tape;
  const Tensor y = forward();
  tape.backward(y, dy);
  std::vector<Tensor> all = {y.detach().copy()};
  for (Parameter* p : model.parameters()) all.push_back(p->grad.copy());
  return all;
}

void expect_rows_of_one_or_none(const Weights& weights, double tolerance) {
  for (const auto& [path, w] : weights) {
    const auto values = w.values();
    const auto keys = static_cast<size_t>(w.size(3));
    for (size_t row = 0; row < values.size(); row += keys) {
      const double total = std::accumulate(values.begin() + row, values.begin() + row + keys, 0.0);
      ASSERT_TRUE(total == 0 || std::abs(total - 1) <= tolerance)
          << path << " row " << row / keys << " " << total;
    }
  }
}

Tensor masked(std::vector<double> row, int64_t time) {  // the second row has no padding
  row.insert(row.end(), {1, 1, 1, 1});
  return slice(tensor({2, 4}, row, DType::i32), 1, 0, time);
}

const MultiHeadAttentionConfig kLayer = {
    .d_model = 16, .n_heads = 4, .init_std = 0.5, .output_init_std = 0.5};

// B01: a window of 2 and padding from the third key on hide all keys from query 3.
TEST(BlindQuery, TheLayersGradientsAreThoseOfTheBatchWithoutIt) {
  for (const auto& [dtype, tolerance] : kTypes)
    for (const char* position : {"none", "rope", "rope_interleaved", "alibi"})
      for (const bool capture : {false, true}) {
        MultiHeadAttentionConfig c = kLayer;
        c.n_kv_heads = 2, c.causal = true, c.window = 2, c.position = position, c.qk_norm = true;
        Module root({.dtype = dtype});
        MultiHeadAttention layer{&root, "attention", c};
        const auto through = [&](int64_t time) {
          Weights weights;
          Context context{.padding_mask = masked({1, 1, 0, 0}, time),
                          .weights = capture ? &weights : nullptr};
          const Tensor x = slice(random_tensor({2, 4, 16}, dtype), 1, 0, time);
          const auto all = with_gradients(
              layer, [&] { return slice(layer(x, x, x, context), 1, 0, 3); },
              random_tensor({2, 3, 16}, dtype, 2));
          if (capture && time == 4) {
            const Tensor heads =
                slice(reshape(weights["attention"], {8, 4, 4}), 0, 0, 4);  // of the first batch entry
            EXPECT_EQ(largest(slice(heads, 1, 3, 4)), 0);
          }
          return all;
        };
        expect_near(through(4), through(3), tolerance,
                    fmt::format("{} {} {}", name_of(dtype), position, capture));
      }
}

TEST(BlindQuery, TheDecodersGradientsAreThoseOfTheBatchWithoutIt) {
  for (const auto& [dtype, tolerance] : kTypes)
    for (const char* position : {"learned", "sinusoidal", "rope", "rope_interleaved", "alibi", "none"})
      for (const bool capture : {false, true}) {
        TinyRun run({fmt::format("trainer.dtype={}", name_of(dtype)),
                     fmt::format("model.position={}", position), "model.attention.window=2",
                     "model.n_layers=2", "model.n_heads=4", "model.attention.n_kv_heads=2",
                     "model.init_std=0.3", "model.dropout=0"});
        Trainer trainer(run.config);
        const auto through = [&](int64_t time) {
          Weights weights;
          Context context{.padding_mask = masked({1, 1, 0, 0}, time),
                          .weights = capture ? &weights : nullptr};
          const Tensor ids = slice(tensor({2, 4}, {1, 5, 2, 7, 3, 3, 0, 6}, DType::i32), 1, 0, time),
                       targets = tensor({2, 3}, {5, 2, 7, 3, 0, 6}, DType::i32);
          return with_gradients(
              trainer.model(),
              [&] { return cross_entropy(slice(trainer.model()(ids, context), 1, 0, 3), targets); },
              full({}, 1, dtype));
        };
        expect_near(through(4), through(3), tolerance,
                    fmt::format("{} {} {}", name_of(dtype), position, capture));
      }
}

// In a batch of padding alone, only the output bias has a gradient.
TEST(BlindQuery, ABatchOfThemSendsExactlyNothingBack) {
  for (const auto& [dtype, tolerance] : kTypes)
    for (const char* position : {"none", "rope", "alibi"})
      for (const bool capture : {false, true}) {
        MultiHeadAttentionConfig c = kLayer;
        c.n_kv_heads = 2, c.causal = true, c.position = position, c.qk_norm = true, c.logit_softcap = 3;
        Module root({.dtype = dtype});
        MultiHeadAttention layer{&root, "attention", c};
        Weights weights;
        Context context{.padding_mask = zeros({2, 4}, DType::i32), .weights = capture ? &weights : nullptr};
        const Result r = differentiate([&](const auto& x) { return layer(x[0], x[1], x[2], context); },
                                       {random_tensor({2, 4, 16}, dtype), random_tensor({2, 4, 16}, dtype, 2),
                                        random_tensor({2, 4, 16}, dtype, 3)});
        EXPECT_EQ(largest(r.y), 0);
        for (const Tensor& g : r.gradients) EXPECT_EQ(largest(g), 0) << position << " " << capture;
        for (Parameter* p : layer.parameters())
          EXPECT_EQ(largest(p->grad) > 0, p->path == "attention.output.bias") << p->path;
      }
}

// With fewer queries than keys, the last query is at the position of the last key, for masks, ALiBi and RoPE.
TEST(Positions, TheLastQueriesAreTheLastRowsOfTheFullPass) {
  for (const auto& [dtype, tolerance] : kTypes)
    for (const char* position : {"none", "alibi", "rope", "rope_interleaved"})
      for (const int64_t window : {0, 3})
        for (const bool capture : {false, true}) {
          MultiHeadAttentionConfig c = kLayer;
          c.n_kv_heads = 2, c.causal = true, c.window = window, c.position = position;
          Module root({.dtype = dtype});
          MultiHeadAttention layer{&root, "attention", c};
          Weights weights;
          const Tensor x = random_tensor({2, 8, 16}, dtype);
          const auto rows = [&](int64_t from, int64_t to) { return slice(x, 1, from, to); };
          const auto context = [&](int64_t first, KeyValueCache* cache) {
            return Context{.first_position = first, .weights = capture ? &weights : nullptr, .cache = cache};
          };
          const std::string what = fmt::format("{} {} window {}", name_of(dtype), position, window);
          Context plain = context(0, nullptr);
          const Tensor whole = layer(x, x, x, plain);
          for (const int64_t from : {7, 5, 0})
            expect_near({layer(rows(from, 8), x, x, plain)}, {slice(whole, 1, from, 8)}, tolerance, what);
          Context later = context(100, nullptr);  // only differences of positions matter
          expect_near({layer(rows(5, 8), x, x, later)}, {slice(whole, 1, 5, 8)}, 10 * tolerance, what);
          KeyValueCache cache(8);
          Context first = context(0, &cache), second = context(3, &cache);
          layer(rows(0, 3), rows(0, 3), rows(0, 3), first);
          expect_near({layer(rows(6, 8), rows(3, 8), rows(3, 8), second)}, {slice(whole, 1, 6, 8)}, tolerance,
                      what + " after cached keys");
          // With more queries than keys, the first queries are before all keys.
          expect_near({slice(layer(x, rows(3, 8), rows(3, 8), plain), 1, 3, 8)},
                      {layer(rows(3, 8), rows(3, 8), rows(3, 8), plain)}, tolerance, what);
        }
}

// Compares the layer with its ops one by one: projections, QK-norm, RoPE, a custom scale. The cache stores
// the keys after norm and rotation.
TEST(Positions, HeadsAreNormalisedThenTurnedAndKeysAreKeptSo) {
  for (const auto& [dtype, tolerance] : kTypes)
    for (const bool interleaved : {false, true}) {
      Module root({.dtype = dtype});
      MultiHeadAttention layer{&root,
                               "attention",
                               {.d_model = 4,
                                .n_heads = 1,
                                .causal = true,
                                .position = interleaved ? Choice<PositionKind>(InterleavedRopeConfig{{100}})
                                                        : Choice<PositionKind>(RopeConfig{100}),
                                .qk_norm = true,
                                .norm_eps = 1e-3,
                                .scale = 0.7,
                                .init_std = 0.5,
                                .output_init_std = 0.5}};
      for (Parameter* p : layer.parameters())  // biases are initially 0 and gains 1
        if (p->value.rank() == 1) copy_into(random_tensor({4}, dtype, p->path.size()), p->value);
      const auto of = [&](const std::string& path) { return layer.parameter("attention." + path).value; };
      const auto projected = [&](const char* name, const Tensor& x) {
        return linear(x, of(std::string(name) + ".weight"), of(std::string(name) + ".bias"));
      };
      const RopeOptions turn{.theta = 100, .interleaved = interleaved};
      const auto placed = [&](const char* name, const Tensor& x) {
        return rope(rms_norm(projected(name, x), of(std::string(name) + "_norm.weight"), 1e-3), turn);
      };
      const Tensor x = random_tensor({1, 5, 4}, dtype), keys = placed("key", x), v = projected("value", x);
      Tensor scores = scale(matmul(placed("query", x), keys, false, true), 0.7);
      std::vector<double> before;
      for (int i = 0; i < 25; ++i) before.push_back(i % 5 <= i / 5);
      scores = masked_fill(scores, tensor({5, 5}, before, DType::i32), -INFINITY);
      const Tensor right = projected("output", matmul(softmax(scores), v));
      KeyValueCache cache(8);
      Weights weights;
      for (Context context : {Context{}, Context{.weights = &weights}, Context{.cache = &cache}})
        expect_near({layer(x, x, x, context)}, {right}, tolerance, name_of(dtype));
      const auto kept = cache.append("attention", zeros({1, 1, 4}, dtype), zeros({1, 1, 4}, dtype));
      expect_near({slice(kept.first, 1, 0, 5), slice(kept.second, 1, 0, 5)}, {keys, v}, tolerance, "cache");
      const Tensor other_order = rms_norm(rope(projected("key", x), turn), of("key_norm.weight"), 1e-3);
      EXPECT_GT(relative_error(other_order, keys), 1e-2) << "the order shows";
    }
}

TEST(CrossAttention, TakesNothingThatComparesPositions) {
  Module root;
  const std::string none = " compares positions, but a source has its own; cross-attention takes none";
  EXPECT_EQ(misfit(MultiHeadAttentionConfig{.causal = true, .cross = true}), "causal" + none);
  EXPECT_EQ(misfit(MultiHeadAttentionConfig{.cross = true, .window = 2}), "window" + none);
  EXPECT_EQ(misfit(MultiHeadAttentionConfig{.cross = true}), "");
  EXPECT_EQ(error_of([&] { MultiHeadAttention(&root, "a", {.causal = true, .cross = true}); }),
            "[a] causal" + none);
  EXPECT_EQ(error_of([&] { ScaledDotProductAttention(&root, "a", {.causal = true, .cross = true}); }),
            "[a] causal" + none);
  EXPECT_EQ(error_of([&] { ScaledDotProductAttention(&root, "a", {.cross = true, .window = 1}); }),
            "[a] window" + none);
}

// B03: the values are 1 and 2, the scores 0, and the output projection is the identity.
TEST(GroupedHeads, ALayersHeadsReadTheirOwnValues) {
  for (const auto& [dtype, tolerance] : kTypes)
    for (const bool capture : {false, true}) {
      Module root({.dtype = dtype});
      MultiHeadAttention layer{
          &root, "attention", {.d_model = 4, .n_heads = 4, .n_kv_heads = 2, .init_std = 0}};
      copy_into(tensor({2}, {1, 2}, dtype), layer.value.bias->value);
      copy_into(tensor({4, 4}, {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1}, dtype),
                layer.output.weight->value);
      Weights weights;
      Context context{.weights = capture ? &weights : nullptr};
      const Tensor x = zeros({1, 3, 4}, dtype);
      expect_values(with_gradients(
                        layer, [&] { return layer(x, x, x, context); }, full({1, 3, 4}, 1, dtype))[0],
                    {1, 1, 2, 2, 1, 1, 2, 2, 1, 1, 2, 2}, tolerance);
      expect_values(layer.value.bias->grad, {6, 6}, tolerance);  // from three queries of two heads
    }
}

// Query head h reads key/value head h / 2. The layer equals one with four key/value heads in which heads 0
// and 1, and heads 2 and 3, have equal weights.
TEST(GroupedHeads, ALayerIsOneWithItsKeyAndValueHeadsRepeatedInBlocks) {
  for (const auto& [dtype, tolerance] : kTypes)
    for (const char* position : {"none", "rope", "rope_interleaved", "alibi"})
      for (const bool capture : {false, true}) {
        MultiHeadAttentionConfig c = kLayer;
        c.position = position, c.causal = true, c.qk_norm = true;
        Module root({.dtype = dtype});
        MultiHeadAttention all{&root, "all", c};
        c.n_kv_heads = 2;
        MultiHeadAttention shared{&root, "shared", c};
        const auto heads = [](const Tensor& x) { return reshape(x, {4, x.elements() / 4}); };
        const auto twice = [](const Tensor& x) {
          const auto head = split(reshape(x, {2, x.elements() / 2}), 0, {1, 1});
          return concat({head[0], head[0], head[1], head[1]}, 0);
        };
        for (Parameter* p : shared.parameters()) {
          Parameter& to = all.parameter("all" + p->path.substr(6));
          copy_into(p->value.elements() == to.value.elements() ? p->value
                                                               : reshape(twice(p->value), to.value.shape()),
                    to.value);
        }
        const Tensor x = random_tensor({2, 5, 16}, dtype), dy = random_tensor({2, 5, 16}, dtype, 2);
        Weights weights;
        const auto through = [&](MultiHeadAttention& layer) {
          Context context{.weights = capture ? &weights : nullptr};
          return with_gradients(
              layer, [&] { return layer(x, x, x, context); }, dy);
        };
        auto right = through(all);
        const auto got = through(shared);
        for (size_t i = 0; i < got.size(); ++i)
          if (got[i].elements() != right[i].elements()) {
            const auto head = split(heads(right[i]), 0, {1, 1, 1, 1});
            right[i] = reshape(concat({add(head[0], head[1]), add(head[2], head[3])}, 0), got[i].shape());
          }
        expect_near(got, right, tolerance, fmt::format("{} {} {}", name_of(dtype), position, capture));
        if (capture) expect_near({weights["shared"]}, {weights["all"]}, tolerance, position);
      }
}

TEST(Capture, LookingAtTheWeightsChangesNothingInTraining) {
  const std::vector<std::vector<std::string>> models = {
      {"model.position=learned"},
      {"model.position=rope", "model.attention.n_kv_heads=2", "model.attention.qk_norm=true"},
      {"model.position=rope_interleaved", "model.attention.logit_softcap=3"},
      {"model.position=alibi", "model.attention.n_kv_heads=1", "model.attention.window=3"}};
  for (const auto& [dtype, tolerance] : {std::pair{DType::f32, 1e-6}, std::pair{DType::f64, 1e-12}})
    for (std::vector<std::string> settings : models) {
      const std::string what = fmt::format("{} {}", name_of(dtype), settings[0]);
      settings.insert(settings.end(), {fmt::format("trainer.dtype={}", name_of(dtype)), "model.dropout=0.3",
                                       "model.n_layers=2", "model.n_heads=4", "model.init_std=0.1"});
      TinyRun run(settings);
      Trainer trainer(run.config);
      const Tensor ids = tensor({2, 6}, {1, 5, 2, 7, 3, 3, 0, 6, 6, 1, 4, 2}, DType::i32),
                   dy = random_tensor({2, 6, trainer.model().vocab_size()}, dtype);
      Weights weights;
      const auto through = [&](Weights* captured) {
        Context context{.training = true,
                        .random = {.seed = 7, .step = 3},
                        .padding_mask = tensor({2, 6}, {0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0}, DType::i32),
                        .segment_ids = tensor({2, 6}, {1, 1, 1, 2, 2, 2, 4, 4, 4, 4, 4, 9}, DType::i32),
                        .weights = captured};
        return with_gradients(
            trainer.model(), [&] { return trainer.model()(ids, context); }, dy);
      };
      expect_near(through(&weights), through(nullptr), tolerance, what);
      EXPECT_EQ(weights.size(), 2u);
      expect_rows_of_one_or_none(weights, tolerance);
    }
}

// Peak memory of a forward and backward pass through one head, less the memory in use before, in (T,T) tables
// of scores.
double tables_taken(int64_t time, Weights* weights) {
  Module root;
  MultiHeadAttention layer{
      &root, "attention", {.d_model = 4, .n_heads = 1, .causal = true, .attention_dropout = 0.1}};
  const Tensor x = random_tensor({1, time, 4}, DType::f32);
  Pool& memory = pool({});
  const int64_t start = memory.statistics().in_use;
  Context context{.training = true, .weights = weights};
  with_gradients(
      layer, [&] { return layer(x, x, x, context); }, x);
  return static_cast<double>(memory.statistics().peak - start) / static_cast<double>(time * time * 4);
}

TEST(Capture, NoTableIsKeptWhereNobodyLooks) {
  const Threads two(2);
  EXPECT_LT(tables_taken(3000, nullptr), 0.2);
  Weights weights;
  EXPECT_GT(tables_taken(3000, &weights), 1);
}

}  // namespace
}  // namespace bonsai::test
