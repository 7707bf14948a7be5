// Compares the gradients of every layer's inputs and parameters with finite differences in f64. The layers
// are built as a user would build them.
#include <fstream>
#include <regex>

#include "bonsai/framework/checks/gradcheck.h"
#include "bonsai/framework/ops/ops.h"
#include "bonsai/layers/feed_forward/feed_forward.h"
#include "bonsai/layers/model/transformer.h"
#include "bonsai/layers/feed_forward/swiglu.h"
#include "bonsai/layers/norm/layer_norm.h"
#include "bonsai/layers/position/learned.h"
#include "bonsai/layers/position/sinusoidal.h"

#include "bonsai/tests/support.h"

namespace bonsai::test {
namespace {

// A layer to check: its type and variant, its inputs, and how it is built and called.
struct LayerCase {
  std::string layer;
  std::string variant;
  std::vector<Tensor> inputs;
  // Builds the layer under the root and returns a call of it.
  std::function<DifferentiableFunction(Module&, std::vector<std::unique_ptr<Module>>&)> build;

  std::string name() const { return variant.empty() ? layer : layer + " (" + variant + ")"; }
};

Tensor input(const Shape& shape, uint64_t seed = 1) { return random_tensor(shape, DType::f64, seed); }

Context training() {
  Context c;
  c.training = true;
  c.random = {.seed = 7, .step = 3};
  c.source = {.ids = tensor({2, 3}, {1, 2, 4, 4, 0, 6}, DType::i32),
              .padding_mask = tensor({2, 3}, {1, 1, 1, 1, 0, 0}, DType::i32)};
  return c;
}

// As training(), with features of the source, which a block reads; a decoder computes them itself.
Context training_with_features() {
  Context c = training();
  c.source.features = input({2, 3, 6}, 9);
  return c;
}

// The case of a Layer with one input.
template <class T, class Config>
LayerCase one_input(std::string layer, std::string variant, Tensor x, Config config) {
  return {std::move(layer),
          std::move(variant),
          {std::move(x)},
          [config](Module& root, auto& owner) -> DifferentiableFunction {
            auto made = std::make_unique<T>(&root, "layer", config);
            T* made_layer = made.get();
            owner.push_back(std::move(made));
            return [made_layer](const std::vector<Tensor>& in) {
              Context context = std::is_same_v<T, Block> ? training_with_features() : training();
              if constexpr (std::is_same_v<T, Transformer>)
                if (!made_layer->encoder) context.source = {};
              return (*made_layer)(in[0], context);
            };
          }};
}

LayerCase multi_head(std::string variant, MultiHeadAttentionConfig c, int64_t queries, int64_t keys,
                     bool weights = false) {
  const int64_t d_key = c.d_key ? c.d_key : c.d_model, d_value = c.d_value ? c.d_value : c.d_model;
  return {"MultiHeadAttention", std::move(variant),
          {input({2, queries, c.d_model}), input({2, keys, d_key}, 2), input({2, keys, d_value}, 3)},
          [c, weights](Module& root, auto& owner) -> DifferentiableFunction {
            auto made = std::make_unique<MultiHeadAttention>(&root, "layer", c);
            MultiHeadAttention* layer = made.get();
            owner.push_back(std::move(made));
            return [layer, weights](const std::vector<Tensor>& in) {
              Context context = training();
              if (!weights) return (*layer)(in[0], in[1], in[2], context);
              const AttentionResult r = layer->with_weights(in[0], in[1], in[2], context);
              return add(sum(r.output), sum(mul(r.weights, r.weights)));
            };
          }};
}

BlockConfig block_config(int64_t n_heads, bool causal, const char* norm, bool cross = false) {
  BlockConfig c;
  c.context = {.d_model = 6, .n_heads = n_heads, .causal = causal, .init_std = 0.5, .output_init_std = 0.5};
  c.norm = norm, c.cross = cross;
  return c;
}

std::vector<LayerCase> layer_cases() {
  const Tensor x = input({2, 5, 6});
  std::vector<LayerCase> all = {
      one_input<Linear>("Linear", "", x, LinearConfig{.in = 6, .out = 4}),
      one_input<Linear>("Linear", "no bias", x, LinearConfig{.in = 6, .out = 6, .bias = false}),
      one_input<Embedding>("Embedding", "", tensor({2, 3}, {0, 4, 4, 1, 2, 4}, DType::i32),
                           EmbeddingConfig{.entries = 5, .width = 3}),
      one_input<LayerNorm>("LayerNorm", "", x, LayerNormConfig{.width = 6}),
      one_input<LayerNorm>("LayerNorm", "no bias", x, LayerNormConfig{.width = 6, .bias = false}),
      one_input<RMSNorm>("RMSNorm", "", x, RMSNormConfig{.width = 6}),
      one_input<Dropout>("Dropout", "", x, DropoutConfig{.p = 0.3}),
      one_input<LearnedPositions>("LearnedPositions", "", x, PositionConfig{.block_size = 5, .width = 6}),
      one_input<SinusoidalPositions>("SinusoidalPositions", "", x,
                                     PositionConfig{.block_size = 7, .width = 6}),
      one_input<FeedForward>(
          "FeedForward", "", x,
          FeedForwardConfig{.d_model = 6, .dropout = 0.2, .init_std = 0.5, .output_init_std = 0.5}),
      one_input<FeedForward>(
          "FeedForward", "silu, no bias", x,
          FeedForwardConfig{
              .d_model = 6, .d_hidden = 5, .activation = "silu", .bias = false, .init_std = 0.5}),
      one_input<Block>("Block", "", x, block_config(2, true, "layer_norm")),
      one_input<Block>("Block", "rms_norm", x, block_config(3, false, "rms_norm")),
      one_input<Block>("Block", "with a source, which has padding", x,
                       block_config(2, true, "layer_norm", true)),
      one_input<SwiGLU>("SwiGLU", "", x,
                        SwiGLUConfig{.d_model = 6, .d_hidden = 5, .bias = true, .init_std = 0.5}),
      multi_head("grouped heads, rope, qk_norm",
                 {.d_model = 8,
                  .n_heads = 4,
                  .n_kv_heads = 2,
                  .causal = true,
                  .position = "rope",
                  .qk_norm = true,
                  .init_std = 0.5},
                 4, 4),
      multi_head("interleaved rope, window",
                 {.d_model = 8,
                  .n_heads = 2,
                  .causal = true,
                  .window = 2,
                  .position = "rope_interleaved",
                  .init_std = 0.5},
                 4, 4),
      multi_head("alibi, soft cap, one key/value head",
                 {.d_model = 6,
                  .n_heads = 3,
                  .n_kv_heads = 1,
                  .causal = true,
                  .position = "alibi",
                  .logit_softcap = 1.5,
                  .init_std = 0.5},
                 4, 4),
      multi_head("self-attention sizes", {.d_model = 6, .n_heads = 2, .causal = true, .init_std = 0.5}, 4, 4),
      multi_head(
          "cross-attention",
          {.d_model = 6, .n_heads = 3, .d_key = 4, .d_value = 5, .init_std = 0.5, .output_init_std = 0.5}, 3,
          5),
      multi_head("cross-attention to a source with padding",
                 {.d_model = 6,
                  .n_heads = 3,
                  .n_kv_heads = 1,
                  .cross = true,
                  .qk_norm = true,
                  .init_std = 0.5,
                  .output_init_std = 0.5},
                 4, 3),
      multi_head("no bias, dropout",
                 {.d_model = 6,
                  .n_heads = 2,
                  .causal = true,
                  .bias = false,
                  .output_bias = false,
                  .attention_dropout = 0.3,
                  .residual_dropout = 0.2,
                  .init_std = 0.5},
                 4, 4),
      multi_head("one of two ranks",
                 {.d_model = 8,
                  .n_heads = 4,
                  .n_kv_heads = 2,
                  .causal = true,
                  .position = "alibi",
                  .qk_norm = true,
                  .attention_dropout = 0.3,
                  .init_std = 0.5,
                  .output_init_std = 0.5,
                  .model_parallel_size = 2,
                  .rank = 1},
                 4, 4),
      multi_head("with weights", {.d_model = 6, .n_heads = 2, .causal = true, .init_std = 0.5}, 4, 4, true),
  };
  for (const bool weights : {false, true})
    all.push_back({"ScaledDotProductAttention", weights ? "with weights, a learned mask" : "causal",
                   {input({2, 4, 3}), input({2, 6, 3}, 2), input({2, 6, 5}, 3), input({4, 6}, 4)},
                   [weights](Module& root, auto& owner) -> DifferentiableFunction {
                     owner.push_back(std::make_unique<ScaledDotProductAttention>(
                         &root, "layer", ScaledDotProductAttentionConfig{.causal = true, .dropout = 0.2}));
                     auto* layer = static_cast<ScaledDotProductAttention*>(owner.back().get());
                     return [layer, weights](const std::vector<Tensor>& in) {
                       Context context = training();
                       if (weights) return (*layer)(in[0], in[1], in[2], context, in[3]);
                       return add(sum((*layer)(in[0], in[1], in[2], context)), sum(in[3]));
                     };
                   }});
  for (const std::string& name : registry<FeedForwardKind>().names())
    all.push_back({name, "as registered", {x}, [name](Module& root, auto& owner) -> DifferentiableFunction {
                     const Choice<FeedForwardKind> part = name;
                     std::unique_ptr<Layer> made = part.make(&root, "layer", BlockContext{.d_model = 6});
                     Layer* layer = made.get();
                     for (Parameter* p : layer->parameters())  // large enough for every term to matter
                       for (double& v : p->value.mutable_span<double>()) v *= 20;
                     owner.push_back(std::move(made));
                     return [layer](const std::vector<Tensor>& in) {
                       Context context = training();
                       return (*layer)(in[0], context);
                     };
                   }});
  const Tensor ids = tensor({2, 5}, {0, 3, 3, 1, 6, 2, 2, 5, 4, 0}, DType::i32);
  const TransformerConfig tiny{.vocab_size = 7,
                               .block_size = 6,
                               .n_layers = 2,
                               .n_heads = 2,
                               .d_model = 4,
                               .dropout = 0.1,
                               .init_std = 0.4};
  TransformerConfig other = tiny;
  TransformerConfig llama = tiny;
  llama.attention = MultiHead{{.n_kv_heads = 1}}, llama.norm = "rms_norm", llama.position = "rope",
  llama.mlp = "swiglu", llama.bias = false;
  all.push_back(one_input<Transformer>("Transformer", "Llama's shape", ids, llama));
  TransformerConfig reader = tiny;
  reader.n_encoder_layers = 2, reader.n_layers = 1;
  all.push_back(one_input<Transformer>("Transformer", "with an encoder", ids, reader));
  for (const bool alone : {false, true})
    all.push_back({alone ? "Stack" : "Encoder",
                   "",
                   {ids},
                   [alone](Module& root, auto& owner) -> DifferentiableFunction {
                     StackConfig c{.block_size = 6,
                                   .n_layers = 2,
                                   .position = "learned",
                                   .block = block_config(2, false, "layer_norm")};
                     auto token = std::make_unique<Embedding>(
                         &root, "token", EmbeddingConfig{.entries = 7, .width = 6, .init_std = 0.5});
                     Embedding* table = token.get();
                     owner.push_back(std::move(token));
                     Stack* stack = nullptr;
                     Encoder* encoder = nullptr;
                     if (alone)
                       owner.push_back(std::unique_ptr<Module>(stack = new Stack(&root, "stack", c)));
                     else
                       owner.push_back(
                           std::unique_ptr<Module>(encoder = new Encoder(&root, "encoder", *table, c)));
                     return [=](const std::vector<Tensor>& in) {
                       Context context = training();
                       return encoder ? (*encoder)(in[0], context)
                                      : stack->trunk(stack->embed(*table, in[0], context), context);
                     };
                   }});
  other.norm = "rms_norm", other.position = "sinusoidal", other.tie_embeddings = false, other.bias = false,
  other.mlp = Keys<FeedForwardConfig>{{.activation = "gelu"}};
  all.push_back(one_input<Transformer>("Transformer", "", ids, tiny));
  all.push_back(one_input<Transformer>("Transformer", "rms_norm, sinusoidal, untied, no bias", ids, other));
  return all;
}

TEST(LayerGradients, AgreeWithDifferences) {
  for (const LayerCase& c : layer_cases()) {
    Module root({.dtype = DType::f64, .seed = 5});
    std::vector<std::unique_ptr<Module>> owner;
    const DifferentiableFunction f = c.build(root, owner);
    const GradcheckReport report = gradcheck(c.name(), f, c.inputs, root.parameters());
    EXPECT_TRUE(report.passed()) << report.text();
    printf("%s", report.text().c_str());
  }
}

// Nothing else checks the gradient of a layer without a case here.
TEST(LayerGradients, EveryLayerHasACase) {
  std::set<std::string> covered;
  for (const LayerCase& c : layer_cases()) covered.insert(c.layer);
  const std::regex declared(R"(class (\w+) (?:final )?: public (?:Module|Layer|AddedPositions|Model)\b)");
  int found = 0;
  for (const auto& file : std::filesystem::recursive_directory_iterator(BONSAI_SOURCE_DIR "/layers")) {
    if (file.path().extension() != ".h") continue;
    std::ifstream in(file.path());
    const std::string text((std::istreambuf_iterator<char>(in)), {});
    for (std::sregex_iterator at(text.begin(), text.end(), declared), end; at != end; ++at, ++found) {
      const std::string name = (*at)[1];
      const bool abstract =
          name == "Layer" || name == "Position" || name == "Model" || name == "AttentionLayer";
      EXPECT_TRUE(abstract || covered.count(name)) << name << " of " << file.path().filename();
    }
  }
  EXPECT_GE(found, 13);
}

}  // namespace
}  // namespace bonsai::test
