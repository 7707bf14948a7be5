// What layers guarantee besides their gradients: names, sizes, errors, dropout, bit-identical results.
#include "bonsai/framework/autograd/arena.h"
#include "bonsai/framework/core/parallel.h"
#include "bonsai/framework/ops/ops.h"
#include "bonsai/layers/cache.h"
#include "bonsai/layers/feed_forward/feed_forward.h"
#include "bonsai/layers/model/transformer.h"
#include "bonsai/layers/norm/layer_norm.h"
#include "bonsai/layers/position/learned.h"
#include "bonsai/layers/position/sinusoidal.h"
#include "bonsai/tests/support.h"

namespace bonsai::test {
namespace {

// B70: a config may have any block size; sinusoidal positions are computed only for the positions in use.
TEST(Transformer, ComputedPositionsCostWhatIsAskedOfThem) {
  const auto logits = [](int64_t block_size, int64_t shorter) {
    Module root;
    Transformer model{&root,
                      "",
                      {.vocab_size = 5,
                       .block_size = block_size,
                       .n_layers = 1,
                       .n_heads = 2,
                       .d_model = 8,
                       .position = "sinusoidal"}};
    Context context;
    for (int64_t time = 1; time <= shorter; ++time) model(zeros({1, time}, DType::i32), context);
    return model(tensor({1, 6}, {0, 1, 2, 3, 4, 0}, DType::i32), context);
  };
  const Tensor right = logits(6, 0);
  EXPECT_TRUE(same_bits(logits(1000000000000, 0), right));
  EXPECT_TRUE(same_bits(logits(6, 5), right)) << "a table that grew is another one";
}

TransformerConfig tiny() {
  return {.vocab_size = 10, .block_size = 8, .n_layers = 2, .n_heads = 2, .d_model = 8};
}

Tensor ids(const Shape& shape, int64_t vocabulary) {
  std::vector<double> values(static_cast<size_t>(shape.elements()));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<double>(i * 7 % static_cast<size_t>(vocabulary));
  return tensor(shape, values, DType::i32);
}

TEST(Module, ParametersAreNamedByWhereTheyStand) {
  Module root;
  Transformer transformer{&root, "", tiny()};
  EXPECT_EQ(transformer.parameters().front()->path, "token.weight");
  EXPECT_EQ(transformer.parameter("block.1.attention.query.weight").value.shape(), (Shape{8, 8}));
  EXPECT_NE(error_of([&] { transformer.parameter("block.2.norm_1.weight"); }).find("no parameter"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              Linear again{&root, "token", {}};
              Linear twice{&root, "token", {}};
            }).find("two children"),
            std::string::npos);
}

// B72: the names of children are in a hash table, which must forget those of destroyed children.
TEST(Module, ANameIsFreeAgainOnceItsModuleIsGone) {
  Module root;
  auto first = std::make_unique<Linear>(&root, "first", LinearConfig{});
  const Linear second{&root, "second", {}};
  first.reset();
  const Linear again{&root, "first", {}};
  EXPECT_EQ(root.children(),
            (std::vector<Module*>{const_cast<Linear*>(&second), const_cast<Linear*>(&again)}));
  EXPECT_NE(error_of([&] { Linear twice{&root, "first", {}}; }).find("two children"), std::string::npos);
  EXPECT_NE(error_of([&] {
              Linear twice{&root, "first", {}};
            }).find("two children"),
            std::string::npos)
      << "still";
}

TEST(Module, FirstWeightsDependOnSeedAndPathAlone) {
  Module one, two, other({.seed = 2});
  TransformerConfig deeper = tiny();
  deeper.n_layers = 3;
  Transformer a{&one, "", tiny()}, b{&two, "", deeper}, c{&other, "", tiny()};
  const char* path = "block.1.mlp.up.weight";
  EXPECT_TRUE(same_bits(a.parameter(path).value, b.parameter(path).value));
  EXPECT_FALSE(same_bits(a.parameter(path).value, c.parameter(path).value));
  EXPECT_FALSE(same_bits(a.parameter("block.0.mlp.up.weight").value, a.parameter(path).value));
}

TEST(Module, AFloat64TwinHasTheSameWeights) {
  Module root, wide({.dtype = DType::f64, .seed = 9});
  Transformer a{&root, "", tiny()}, b{&wide, "", tiny()};
  copy_parameters(a, b);
  Context context;
  const Tensor x = ids({2, 8}, 10);
  EXPECT_EQ(b(x, context).dtype(), DType::f64);
  EXPECT_LE(relative_error(a(x, context), b(x, context)), 1e-5);
}

// B08 (d): a tied table is one parameter.
TEST(Transformer, ATiedTableIsCountedOnce) {
  Module root;
  Transformer transformer{
      &root, "", {.vocab_size = 65, .block_size = 8, .n_layers = 1, .n_heads = 2, .d_model = 16}};
  std::vector<Parameter*> tables;
  for (Parameter* p : transformer.parameters())
    if (p->value.shape() == Shape{65, 16}) tables.push_back(p);
  ASSERT_EQ(tables.size(), 1u);
  EXPECT_EQ(tables[0]->value.elements(), 1040);
  Tape tape;
  Context context;
  tape.backward(sum(transformer(ids({2, 4}, 65), context)));
  EXPECT_EQ(tables[0]->contributions, 2);  // from the embedding and the head
}

TEST(Transformer, EveryParameterGetsAGradientAndMatricesAloneDecay) {
  Module root;
  Transformer transformer{&root, "", tiny()};
  Tape tape;
  Context context;
  const Tensor x = ids({2, 8}, 10);
  tape.backward(cross_entropy(reshape(transformer(x, context), {16, 10}), reshape(x, {16})));
  for (Parameter* p : transformer.parameters()) {
    EXPECT_GT(p->contributions, 0) << p->path;
    EXPECT_EQ(p->decay, p->value.rank() >= 2) << p->path;
  }
}

TEST(Transformer, ParametersAreCountedBeforeTheyAreMade) {
  for (const bool flag : {false, true})
    for (const char* norm : {"layer_norm", "rms_norm"})
      for (const char* position : {"learned", "sinusoidal", "rope"}) {
        TransformerConfig c = tiny();
        c.n_encoder_layers = flag ? 3 : 0, c.attention = MultiHead{{.n_kv_heads = 1, .qk_norm = flag}};
        c.bias = c.tie_embeddings = flag, c.norm = norm, c.position = position, c.d_hidden = flag ? 0 : 24;
        Module root;
        Transformer transformer{&root, "", c};
        int64_t count = 0;
        for (Parameter* p : transformer.parameters()) count += p->value.elements();
        EXPECT_EQ(parameter_count(c), static_cast<double>(count));
      }
}

// B32: invalid settings are refused with name, value and rule.
TEST(Transformer, SettingsAreChecked) {
  const auto refused = [](auto change, const std::vector<std::string>& words) {
    TransformerConfig c = tiny();
    change(c);
    const std::string error = error_of([&] {
      Module root;
      Transformer transformer{&root, "", c};
    });
    for (const std::string& word : words)
      EXPECT_NE(error.find(word), std::string::npos) << word << " is not in: " << error;
  };
  refused([](auto& c) { c.d_model = 10, c.n_heads = 3; }, {"d_model 10 is not divisible by n_heads 3"});
  refused([](auto& c) { c.n_heads = 0; }, {"n_heads is 0", "at least 1"});
  refused([](auto& c) { c.n_heads = -1; }, {"n_heads is -1", "at least 1"});
  refused([](auto& c) { c.d_model = 0; }, {"d_model is 0", "at least 1"});
  refused([](auto& c) { c.n_layers = 0; }, {"n_layers is 0", "at least 1"});
  refused([](auto& c) { c.block_size = 0; }, {"block_size is 0", "at least 1"});
  refused([](auto& c) { c.vocab_size = 0; }, {"vocab_size is 0", "at least 1"});
  refused([](auto& c) { c.dropout = 1.5; }, {"dropout is 1.5", "from 0 to 1"});
  refused([](auto& c) { c.dropout = -0.1; }, {"dropout is -0.1", "from 0 to 1"});
  refused([](auto& c) { c.dropout = NAN; }, {"dropout is nan"});
  refused([](auto& c) { c.norm_eps = -1; }, {"norm_eps is -1"});
  refused([](auto& c) { c.mlp = Keys<FeedForwardConfig>{{.activation = "swish"}}; },
          {"mlp.activation is 'swish'", "gelu_tanh"});
  refused([](auto& c) { c.norm = "batch"; }, {"norm is 'batch'", "rms_norm"});
  refused([](auto& c) { c.position = "rope2"; }, {"position is 'rope2'", "learned"});
  refused([](auto& c) { c.n_encoder_layers = -1; }, {"n_encoder_layers is -1", "at least 0"});
  refused([](auto& c) { c.n_encoder_layers = 1, c.position = "alibi"; },
          {"position alibi", "an encoder needs another"});
  refused([](auto& c) { c.n_heads = 0, c.dropout = 2; }, {"n_heads is 0", "dropout is 2"});  // both errors
  refused([](auto& c) { c.d_model = int64_t{1} << 40, c.n_heads = 1, c.vocab_size = int64_t{1} << 40; },
          {"bytes"});
}

TEST(Layers, SettingsAreCheckedInEveryLayer) {
  Module root;
  EXPECT_NE(error_of([&] { Linear l(&root, "a", {.in = 0, .out = 3}); }).find("in is 0"), std::string::npos);
  EXPECT_NE(error_of([&] { Embedding l(&root, "b", {.entries = 3, .width = -2}); }).find("width is -2"),
            std::string::npos);
  EXPECT_NE(error_of([&] { LayerNorm l(&root, "c", {.width = 0}); }).find("width is 0"), std::string::npos);
  EXPECT_NE(error_of([&] { RMSNorm l(&root, "d", {.width = 0}); }).find("width is 0"), std::string::npos);
  EXPECT_NE(error_of([&] { Dropout l(&root, "e", {.p = 1.01}); }).find("dropout is 1.01"), std::string::npos);
  EXPECT_NE(error_of([&] {
              LearnedPositions l(&root, "f", {.block_size = 0, .width = 4});
            }).find("block_size is 0"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              MultiHeadAttention l(&root, "g", {.d_model = 10, .n_heads = 3});
            }).find("d_model 10 is not divisible by n_heads 3"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              FeedForward l(&root, "h", {.d_model = 4, .activation = "no"});
            }).find("activation is 'no'"),
            std::string::npos);
}

TEST(Layers, ErrorsNameTheParameterAndTheLayer) {
  Module root;
  Transformer transformer{&root, "", tiny()};
  Context context;
  const std::string error = error_of([&] { transformer.trunk(zeros({2, 3, 6}), context); });
  EXPECT_NE(error.find("block.0.norm_1.weight f32(8)"), std::string::npos) << error;
  EXPECT_NE(error.find("f32(2,3,6)"), std::string::npos) << error;
  EXPECT_NE(error.find("(in block.0.norm_1)"), std::string::npos) << error;
}

// B33: a sequence longer than the block is refused with both numbers, for every kind of position.
TEST(Transformer, ASequenceLongerThanTheBlockIsRefused) {
  for (const char* position : {"learned", "sinusoidal", "none"}) {
    TransformerConfig c = tiny();
    c.position = position;
    Module root;
    Transformer transformer{&root, "", c};
    Context context;
    EXPECT_EQ(transformer(ids({1, 8}, 10), context).shape(), (Shape{1, 8, 10}));
    const std::string error = error_of([&] { transformer(ids({1, 9}, 10), context); });
    EXPECT_NE(error.find("9 tokens"), std::string::npos) << error;
    EXPECT_NE(error.find("block_size 8"), std::string::npos) << error;
    context.first_position = 7;
    EXPECT_NE(error_of([&] {
                transformer(ids({1, 2}, 10), context);
              }).find("block_size 8"),
              std::string::npos);
  }
}

TEST(Transformer, IdsOutsideTheVocabularyAreRefused) {
  Module root;
  Transformer transformer{&root, "", tiny()};
  Context context;
  EXPECT_NO_THROW(transformer(tensor({1, 2}, {9, 0}, DType::i32), context));
  for (double bad : {10.0, -1.0}) {
    const std::string error = error_of([&] {
      transformer(tensor({1, 3}, {1, bad, 2}, DType::i32), context);
    });
    EXPECT_NE(error.find("position 1"), std::string::npos) << error;
    EXPECT_NE(error.find("[0, 10)"), std::string::npos) << error;
  }
}

// B36: an empty batch and an empty sequence pass through the whole model, forward and backward.
TEST(Transformer, EmptyBatchesGiveEmptyLogits) {
  Module root;
  Transformer transformer{&root, "", tiny()};
  for (const Shape& shape : {Shape{0, 5}, Shape{3, 0}, Shape{0, 0}}) {
    Tape tape;
    Context context;
    const Tensor logits = transformer(ids(shape, 10), context);
    EXPECT_EQ(logits.shape(), (Shape{shape[0], shape[1], 10}));
    const Tensor loss = cross_entropy(logits, ids(shape, 10));
    EXPECT_EQ(loss.item(), 0);
    for (Parameter* p : transformer.parameters()) p->zero_gradient();
    tape.backward(loss);
    for (Parameter* p : transformer.parameters())
      for (double g : tape.gradient(p->value).values()) ASSERT_EQ(g, 0) << p->path;
  }
}

// The logits of a position are bit-identical for any later tokens.
TEST(Transformer, NoPositionSeesItsFuture) {
  Module root;
  Transformer transformer{&root, "", tiny()};
  Context context;
  std::vector<double> a = {1, 2, 3, 4, 5, 6, 7, 8}, b = {1, 2, 3, 4, 9, 0, 0, 3};
  const Tensor x = transformer(tensor({1, 8}, a, DType::i32), context),
               y = transformer(tensor({1, 8}, b, DType::i32), context);
  EXPECT_TRUE(same_bits(slice(reshape(x, {8, 10}), 0, 0, 4), slice(reshape(y, {8, 10}), 0, 0, 4)));
  EXPECT_FALSE(same_bits(slice(reshape(x, {8, 10}), 0, 4, 8), slice(reshape(y, {8, 10}), 0, 4, 8)));
}

// The loss and all gradients of a decoder are bit-identical for 1, 2 and 3 threads, also with prime sizes.
TEST(Transformer, BitsDoNotDependOnTheNumberOfThreads) {
  const auto run = [](int count, const TransformerConfig& c, const Shape& shape) {
    const Threads threads(count);
    Module root;
    Transformer transformer{&root, "", c};
    Tape tape;
    Context context{.training = true, .random = {.seed = 4}};
    const Tensor x = ids(shape, c.vocab_size);
    const Tensor loss = cross_entropy(transformer(x, context), x);
    tape.backward(loss);
    std::vector<Tensor> all{loss.detach()};
    for (Parameter* p : transformer.parameters()) all.push_back(p->grad.copy());
    return all;
  };
  const TransformerConfig prime{.vocab_size = 101,
                                .block_size = 67,
                                .n_layers = 2,
                                .n_heads = 3,
                                .d_model = 93,
                                .d_hidden = 211,
                                .dropout = 0.1};
  const TransformerConfig round{
      .vocab_size = 65, .block_size = 64, .n_layers = 2, .n_heads = 4, .d_model = 128};
  for (const auto& [config, shape] : {std::pair{prime, Shape{7, 67}}, std::pair{round, Shape{12, 64}}}) {
    const auto one = run(1, config, shape);
    for (int count : {2, 3}) {
      const auto many = run(count, config, shape);
      for (size_t i = 0; i < one.size(); ++i)
        EXPECT_TRUE(same_bits(one[i], many[i])) << count << " threads, tensor " << i;
    }
  }
}

TEST(Positions, SinusoidsAreThoseOfThePaper) {
  Module root({.dtype = DType::f64});
  SinusoidalPositions layer{&root, "position", {.block_size = 4, .width = 4}};
  Context context;
  const auto y = layer(zeros({1, 3, 4}, DType::f64), context).values();
  for (int t = 0; t < 3; ++t) {
    EXPECT_DOUBLE_EQ(y[t * 4 + 0], std::sin(t));
    EXPECT_DOUBLE_EQ(y[t * 4 + 1], std::cos(t));
    EXPECT_DOUBLE_EQ(y[t * 4 + 2], std::sin(t / 100.0));
    EXPECT_DOUBLE_EQ(y[t * 4 + 3], std::cos(t / 100.0));
  }
}

// The fused op and the composed path drop the same attention weights.
TEST(MultiHeadAttention, BothPathsAgreeUnderDropoutAndMasks) {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const bool causal : {false, true})
      for (const double p : {0.0, 0.4, 1.0}) {
        Module root({.dtype = dtype});
        MultiHeadAttention layer{&root,
                                 "attention",
                                 {.d_model = 12,
                                  .n_heads = 3,
                                  .d_key = 5,
                                  .d_value = 7,
                                  .causal = causal,
                                  .attention_dropout = p,
                                  .residual_dropout = p / 2,
                                  .init_std = 0.4,
                                  .output_init_std = 0.4}};
        const std::vector<Tensor> in = {random_tensor({2, 4, 12}, dtype), random_tensor({2, 6, 5}, dtype, 2),
                                        random_tensor({2, 6, 7}, dtype, 3)};
        const auto through = [&](bool weights) {
          Context c{.training = true, .random = {.seed = 3}};
          for (Parameter* p : layer.parameters()) p->zero_gradient();
          const Result r = differentiate(
              [&](const auto& x) {
                return weights ? layer.with_weights(x[0], x[1], x[2], c).output : layer(x[0], x[1], x[2], c);
              },
              in);
          std::vector<Tensor> tensors = r.gradients;
          tensors.push_back(r.y);
          for (Parameter* p : layer.parameters()) tensors.push_back(p->grad.copy());
          return tensors;
        };
        const auto fused = through(false), composed = through(true);
        for (size_t i = 0; i < fused.size(); ++i) {
          double size = 0;
          for (double v : composed[i].values()) size = std::max(size, std::abs(v));
          const double tolerance = dtype == DType::f64 ? 1e-12 : 2e-5;
          EXPECT_LE(relative_error(fused[i], composed[i]) * size, tolerance * std::max(size, 1e-3))
              << i << " p " << p;
        }
      }
}

TEST(MultiHeadAttention, InputsThatDoNotFitAreRefused) {
  Module root;
  MultiHeadAttention layer{&root, "attention", {.d_model = 4, .n_heads = 2}};
  Context c;
  const Tensor q = zeros({2, 3, 4});
  EXPECT_NE(error_of([&] {
              layer(q, zeros({2, 5, 4}), zeros({2, 6, 4}), c);
            }).find("do not fit"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              layer(q, zeros({3, 5, 4}), zeros({3, 5, 4}), c);
            }).find("do not fit"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              layer(q, zeros({2, 5, 3}), zeros({2, 5, 4}), c);
            }).find("attention.key.weight"),
            std::string::npos);
}

// B67: the error names the operand, the axes that it should have, and what to do.
TEST(Axes, AnErrorNamesTheOperandAndItsAxes) {
  const auto expect = [](const std::string& error, const std::function<void()>& f) {
    EXPECT_EQ(error_of(f), error);
  };
  const Tensor two = zeros({5, 4}), three = zeros({1, 5, 4}), four = zeros({1, 1, 5, 4}), one = zeros({4}),
               scalar = zeros({});
  Module root;
  Context c;
  MultiHeadAttention layer{&root, "attention", {.d_model = 4, .n_heads = 2, .qk_norm = true}};
  const std::string batch =
      " must be (batch,time,channels), got f32(5,4); add a batch axis: (1,5,4) (in attention)";
  expect("[attention] the query" + batch, [&] { layer(two, two, two, c); });
  expect("[attention] the value" + batch, [&] { layer(three, three, two, c); });
  const std::string fused = "[scaled_dot_product_attention] ";
  expect(fused + "k must be (batch,time,channels), got f32(1,1,5,4)",
         [&] { scaled_dot_product_attention(three, four, three, {.n_heads = 2}); });
  expect(fused + "v must be (batch,heads,time,width), got f32(1,5,4); add a batch axis: (1,1,5,4)",
         [&] { composed_attention(four, four, three, {}); });
  ScaledDotProductAttention plain{&root, "plain"};
  expect("[attention] k must be (time,width) with up to two axes before, got f32(4) (in plain)",
         [&] { plain(two, one, two, c); });
  Transformer transformer{&root, "model", tiny()};
  expect("[tokens] ids must be (batch,time), got i32(3); add a batch axis: (1,3) (in model)",
         [&] { transformer(ids({3}, 10), c); });
  KeyValueCache cache(4);
  expect("[cache] values must be (batch,time,channels), got f32(5,4); add a batch axis: (1,5,4)",
         [&] { cache.append("a", three, two); });
  LearnedPositions positions{&root, "position", {.block_size = 8, .width = 4}};
  expect("[position] x must be (...,time,width), got f32(4) (in position)", [&] { positions(one, c); });
  Linear up{&root, "up", {.in = 4, .out = 4}};
  expect("[linear] x must be (...,in), got f32() (in up)", [&] { up(scalar, c); });
  expect("[linear] the weight must be (out,in), got up.bias f32(4)", [&] { linear(two, up.bias->value); });
  expect("[matmul] b must be (...,rows,columns), got f32(4)", [&] { matmul(two, one); });
  expect("[embedding] the table must be (entries,width), got f32(4)", [&] { embedding(one, ids({1}, 4)); });
  expect("[embedding] ids may have at most 5 axes, got i32(1,1,1,1,1,1)", [&] {
    embedding(two, ids({1, 1, 1, 1, 1, 1}, 4));
  });
  expect("[rms_norm] x must be (...,channels), got f32()", [&] { rms_norm(scalar, one, 1e-6); });
  expect("[softmax] x must be (...,channels), got f32()", [&] { softmax(scalar); });
  expect("[rope] x must be (...,time,channels), got f32(4)", [&] { rope(one, {.n_heads = 2}); });
  expect("[cross_entropy] logits must be (...,vocabulary), got f32()",
         [&] { cross_entropy(scalar, ids({1}, 4)); });
  expect("[cross_entropy] the target of logits f32(5,4) must be i32(5), got i32(1,5)",
         [&] { cross_entropy(two, ids({1, 5}, 4)); });
  expect("[permute] names 1 axes of f32(5,4), each of which must be named once", [&] { permute(two, {1}); });
  expect("[concat] part 1 is f32(4), but part 0 is f32(5,4): they must have as many axes",
         [&] { concat({two, one}, 0); });
}

// B01 in a whole layer: a query that sees no key causes no NaN.
TEST(MultiHeadAttention, AQueryThatSeesNothingSendsNothingBack) {
  Module root({.dtype = DType::f64});
  MultiHeadAttention layer{
      &root, "attention", {.d_model = 4, .n_heads = 2, .bias = false, .output_bias = false, .init_std = 0.5}};
  const Tensor x = random_tensor({1, 4, 4}, DType::f64);
  std::vector<double> mask(16, 0);
  for (size_t j = 0; j < 4; ++j) mask[12 + j] = -INFINITY;
  for (const bool weights : {false, true}) {
    Context c;
    const Tensor m = tensor({4, 4}, mask, DType::f64);
    for (Parameter* p : layer.parameters()) p->zero_gradient();
    Tape tape;
    const Tensor y = weights ? layer.with_weights(x, x, x, c, m).output : layer(x, x, x, c, m);
    tape.backward(y, full(y.shape(), 1, DType::f64));
    const auto out = y.values();
    for (size_t i = 12; i < 16; ++i) EXPECT_EQ(out[i], 0);
    for (Parameter* p : layer.parameters())
      for (double g : p->grad.values()) ASSERT_TRUE(std::isfinite(g)) << p->path;
  }
}

}  // namespace
}  // namespace bonsai::test
