// An attention layer split over ranks: the ranks' weights, outputs and gradients, concatenated or summed,
// equal those of the whole layer.
#include "bonsai/framework/ops/ops.h"
#include "bonsai/layers/attention/multi_head.h"
#include "bonsai/layers/cache.h"
#include "bonsai/tests/support.h"

namespace bonsai::test {
namespace {

// The axis along which a parameter is split over ranks; -1 if it is not split.
int axis_of(const std::string& path) {
  if (path == "layer.output.weight") return 1;
  return path.find("norm") != std::string::npos || path == "layer.output.bias" ? -1 : 0;
}

// The layer of one rank and one pass through it.
struct Pass {
  Module root{{.dtype = DType::f64, .seed = 5}};
  MultiHeadAttention layer;
  Result result;
  Tensor weights;

  Pass(MultiHeadAttentionConfig c, int64_t ranks, int64_t rank)
      : layer{&root, "layer", with(c, ranks, rank)} {
    for (Parameter* p : root.parameters()) {  // biases are initially 0 and gains 1, which hides errors
      if (p->value.rank() > 1) continue;
      double at = axis_of(p->path) < 0 ? 0 : static_cast<double>(rank * p->value.elements());
      for (double& v : p->value.mutable_span<double>()) v += 0.05 * ++at;
    }
    const auto input = [](int64_t time, int64_t width, uint64_t seed) {
      return random_tensor({2, time, width}, DType::f64, seed);
    };
    const std::vector<Tensor> in = {input(4, c.d_model, 1), input(5, c.d_key ? c.d_key : c.d_model, 2),
                                    input(5, c.d_value ? c.d_value : c.d_model, 3)};
    result = differentiate([&](const auto& x) { return run(x, nullptr); }, in);
    std::map<std::string, Tensor> kept;
    run(in, &kept);
    weights = kept.at(ranks > 1 ? fmt::format("layer#{}", rank) : "layer");
  }

  static MultiHeadAttentionConfig with(MultiHeadAttentionConfig c, int64_t ranks, int64_t rank) {
    c.model_parallel_size = ranks, c.rank = rank;
    return c;
  }
  Tensor run(const std::vector<Tensor>& in, std::map<std::string, Tensor>* kept) {
    Context context;
    context.training = true, context.random = {.seed = 7, .step = 3}, context.weights = kept;
    return layer(in[0], in[1], in[2], context);
  }
  Parameter* find(const std::string& path) {
    for (Parameter* p : root.parameters())
      if (p->path == path) return p;
    return nullptr;
  }
};

Tensor sum_of(const std::vector<Tensor>& parts) {
  Tensor sum = parts[0];
  for (size_t r = 1; r < parts.size(); ++r) sum = add(sum, parts[r]);
  return sum;
}

void expect_parts_of(Pass& whole, const std::vector<std::unique_ptr<Pass>>& parts, const std::string& name) {
  const auto of = [&](auto f) {
    std::vector<Tensor> all;
    for (const auto& part : parts) all.push_back(f(*part));
    return all;
  };
  EXPECT_LE(relative_error(sum_of(of([](Pass& p) { return p.result.y; })), whole.result.y), 1e-12) << name;
  EXPECT_LE(relative_error(concat(of([](Pass& p) { return p.weights; }), 1), whole.weights), 1e-12) << name;
  for (size_t i = 0; i < 3; ++i) {
    const auto gradients = of([i](Pass& p) { return p.result.gradients[i]; });
    EXPECT_LE(relative_error(sum_of(gradients), whole.result.gradients[i]), 1e-12) << name << " input " << i;
  }
  for (Parameter* p : whole.root.parameters()) {
    const int axis = axis_of(p->path);
    std::vector<Tensor> values, gradients;
    for (const auto& part : parts)
      if (Parameter* own = part->find(p->path)) values.push_back(own->value), gradients.push_back(own->grad);
    ASSERT_EQ(values.size(), p->path == "layer.output.bias" ? 1u : parts.size()) << name << " " << p->path;
    if (axis >= 0) values = {concat(values, axis)};
    for (const Tensor& value : values) EXPECT_TRUE(same_bits(value, p->value)) << name << " " << p->path;
    const Tensor gradient = axis >= 0 ? concat(gradients, axis) : sum_of(gradients);
    ASSERT_EQ(gradient.shape(), p->grad.shape()) << name << " " << p->path;
    double size = 1e-2;  // without positions the gradient of a key's bias is rounding error
    for (const double g : p->grad.values()) size = std::max(size, std::abs(g));
    for (const double d : sub(gradient, p->grad).values())
      ASSERT_LE(std::abs(d), 1e-12 * size) << name << " " << p->path;
  }
}

TEST(ModelParallel, RanksAddUpToTheWhole) {
  int cases = 0;
  for (const int64_t kv_heads : {0, 4})
    for (const char* position : {"none", "rope", "rope_interleaved", "alibi"})
      for (int n = 0; n < 32; ++n) {
        MultiHeadAttentionConfig c{.d_model = 16,
                                   .n_heads = 8,
                                   .n_kv_heads = kv_heads,
                                   .causal = n % 2 == 1,
                                   .position = position,
                                   .qk_norm = n / 2 % 2 == 1,
                                   .init_std = 0.5,
                                   .output_init_std = 0.5};
        if (n / 4 % 2 == 1) c.attention_dropout = 0.4;
        if (n / 8 % 2 == 1) c.d_key = 6, c.d_value = 10;
        c.bias = c.output_bias = n / 16 % 2 == 1;
        Pass whole(c, 1, 0);
        for (const int64_t ranks : {1, 2, 4}) {
          std::vector<std::unique_ptr<Pass>> parts;
          for (int64_t rank = 0; rank < ranks; ++rank)
            parts.push_back(std::make_unique<Pass>(c, ranks, rank));
          expect_parts_of(
              whole, parts,
              fmt::format("{}, {} key/value heads, case {}, {} ranks", position, kv_heads, n, ranks));
          ++cases;
        }
      }
  printf("%d cases\n", cases);
}

// A pass with masks and a bias. Returns the output and the gradients of x, the source (x if there is none)
// and the bias.
std::vector<Tensor> masked_pass(MultiHeadAttentionConfig c, int64_t ranks, int64_t rank, bool masks,
                                bool bias, bool composed) {
  Module root({.dtype = DType::f64, .seed = 3});
  MultiHeadAttention layer{&root, "layer", Pass::with(c, ranks, rank)};
  const int64_t keys = c.cross ? 6 : 5, heads = c.n_heads / ranks;
  Context context{.training = true, .random = {.seed = 9, .step = 1}};
  std::map<std::string, Tensor> weights;
  if (composed) context.weights = &weights;
  // The first two keys are padding, so the first two causal queries see no key. The last query has no key of
  // its segment.
  if (masks) {
    std::vector<double> padding_mask, segment_ids, asked;
    for (int64_t i = 0; i < 2 * keys; ++i)
      padding_mask.push_back(i > 1),
          segment_ids.push_back(i < keys ? 0 : static_cast<double>((i - keys) / 2));
    for (int64_t i = 0; i < 10; ++i)
      asked.push_back(i < 5 ? 0 : i == 9 ? 7 : static_cast<double>((i - 5) / 2));
    const Tensor of_keys = tensor({2, keys}, segment_ids, DType::i32);
    (c.cross ? context.source.padding_mask : context.padding_mask) =
        tensor({2, keys}, padding_mask, DType::i32);
    if (c.cross) context.source.segment_ids = of_keys;
    context.segment_ids = c.cross ? tensor({2, 5}, asked, DType::i32) : of_keys;
  }
  const Result r = differentiate(
      [&](const auto& x) {
        const Tensor own = bias ? slice(x[2], 1, rank * heads, (rank + 1) * heads) : Tensor();
        return layer(x[0], x[1], x[1], context, own);
      },
      {random_tensor({2, 5, 16}, DType::f64, 1), random_tensor({2, keys, 16}, DType::f64, 2),
       random_tensor({1, c.n_heads, 5, keys}, DType::f64, 3)});
  std::vector<Tensor> all = {r.y, r.gradients[0], r.gradients[1]};
  if (bias) all.push_back(r.gradients[2]);
  return all;
}

TEST(ModelParallel, RanksAddUpUnderMasksBiasesAndOverASource) {
  for (int n = 0; n < 128; ++n) {
    const bool cross = n % 2 == 1, masks = n / 2 % 2 == 1, bias = n / 4 % 2 == 1, composed = n / 8 % 2 == 1;
    const MultiHeadAttentionConfig c{.d_model = 16,
                                     .n_heads = 8,
                                     .n_kv_heads = n / 16 % 2 == 1 ? 4 : 0,
                                     .causal = !cross,
                                     .cross = cross,
                                     .window = !cross && n / 32 % 2 == 1 ? 2 : 0,
                                     .position = cross ? "none" : "rope",
                                     .qk_norm = true,
                                     .logit_softcap = n / 64 % 2 == 1 ? 2.0 : 0.0,
                                     .attention_dropout = 0.3,
                                     .init_std = 0.5,
                                     .output_init_std = 0.5};
    const auto whole = masked_pass(c, 1, 0, masks, bias, composed);
    for (const int64_t ranks : {2, 4}) {
      std::vector<std::vector<Tensor>> parts(whole.size());
      for (int64_t rank = 0; rank < ranks; ++rank) {
        const auto part = masked_pass(c, ranks, rank, masks, bias, composed);
        for (size_t i = 0; i < part.size(); ++i) parts[i].push_back(part[i]);
      }
      for (size_t i = 0; i < whole.size(); ++i)
        ASSERT_LE(relative_error(sum_of(parts[i]), whole[i]), 1e-12)
            << "case " << n << ", " << ranks << " ranks, " << i;
    }
  }
}

TEST(ModelParallel, RanksShareACacheAndAMapOfWeights) {
  for (const bool cross : {false, true}) {
    const MultiHeadAttentionConfig c{.d_model = 16,
                                     .n_heads = 8,
                                     .n_kv_heads = 4,
                                     .causal = !cross,
                                     .cross = cross,
                                     .position = cross ? "none" : "rope",
                                     .init_std = 0.5,
                                     .output_init_std = 0.5};
    std::vector<std::unique_ptr<Module>> roots;
    const auto layer = [&](int64_t ranks, int64_t rank) {
      roots.push_back(std::make_unique<Module>(Build{.dtype = DType::f64}));
      return std::make_unique<MultiHeadAttention>(roots.back().get(), "layer", Pass::with(c, ranks, rank));
    };
    const auto whole = layer(1, 0), first = layer(2, 0), second = layer(2, 1);
    const Tensor x = random_tensor({2, 4, 16}, DType::f64), source = random_tensor({2, 6, 16}, DType::f64, 2);
    const Tensor keys = cross ? source : x;
    Context plain;
    const AttentionResult right = whole->with_weights(x, keys, keys, plain);
    KeyValueCache cache(4);
    std::map<std::string, Tensor> weights;
    for (int64_t t = 0; t < 4; ++t) {
      const Tensor token = slice(x, 1, t, t + 1), k = cross ? source : token;
      Context context{.first_position = t, .weights = &weights, .cache = &cache};
      const Tensor sum = add((*first)(token, k, k, context), (*second)(token, k, k, context));
      EXPECT_LE(relative_error(sum, slice(right.output, 1, t, t + 1)), 1e-12) << cross << " " << t;
      const Tensor all = slice(slice(right.weights, 2, t, t + 1), 3, 0, cross ? 6 : t + 1);
      EXPECT_LE(relative_error(concat({weights.at("layer#0"), weights.at("layer#1")}, 1), all), 1e-12);
    }
    EXPECT_EQ(weights.size(), 2u);
  }
}

std::string error_with(MultiHeadAttentionConfig c) {
  c.d_model = 16, c.n_heads = 8;
  Module root;
  return error_of([&] { MultiHeadAttention(&root, "layer", c); });
}

TEST(ModelParallel, SizesThatDoNotFitAreOneSentence) {
  EXPECT_EQ(error_with({.model_parallel_size = 3}),
            "[layer] 8 heads with 8 key/value heads are not divisible by model_parallel_size 3");
  EXPECT_EQ(error_with({.n_kv_heads = 2, .model_parallel_size = 4}),
            "[layer] 8 heads with 2 key/value heads are not divisible by model_parallel_size 4");
  EXPECT_EQ(error_with({.model_parallel_size = 2, .rank = 2}),
            "[layer] rank 2 is not below model_parallel_size 2");
  EXPECT_EQ(error_with({.residual_dropout = 0.1, .model_parallel_size = 2}),
            "[layer] residual_dropout 0.1 belongs after the sum of the ranks' outputs; set it to 0");
  EXPECT_EQ(error_with({.residual_dropout = 0.1, .model_parallel_size = 1}), "no error");
  EXPECT_NE(error_with({.model_parallel_size = 0}).find("model_parallel_size"), std::string::npos);
  Module root;
  EXPECT_EQ(error_of([&] {
              Linear(&root, "linear", {.in = 4, .out = 6, .part = {0, 1, 4}});
            }),
            "[parameter] axis 0 of (6,4) has no part 1 of 4");
  for (const Part part : {Part{-1, 0, 2}, Part{-1, 0, 1}, Part{2, 0, 2}, Part{2, 0, 1}, Part{0, -1, 2},
                          Part{1, 3, 1}, Part{0, 0, 0}, Part{0, 0, -2}})
    EXPECT_EQ(
        error_of([&] { Linear(&root, "linear", {.in = 4, .out = 6, .part = part}); }),
        fmt::format("[parameter] axis {} of (6,4) has no part {} of {}", part.axis, part.index, part.count));
}

}  // namespace
}  // namespace bonsai::test
