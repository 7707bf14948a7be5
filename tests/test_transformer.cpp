// Every value of a decoder's config reaches all layers that use it. Otherwise training would silently use
// another model than the file describes.
#include <map>
#include <set>

#include "bonsai/framework/autograd/dispatch.h"
#include "bonsai/framework/ops/ops.h"
#include "bonsai/layers/feed_forward/feed_forward.h"
#include "bonsai/layers/norm/layer_norm.h"
#include "bonsai/layers/position/rope.h"
#include "bonsai/layers/model/transformer.h"
#include "bonsai/tests/support.h"

namespace bonsai::test {
namespace {

TransformerConfig small() {
  return {.vocab_size = 10, .block_size = 8, .n_layers = 2, .n_heads = 2, .d_model = 8};
}

Tensor some_ids(int64_t rows = 2) {
  std::vector<double> values;
  for (int64_t i = 0; i < rows * 8; ++i) values.push_back(static_cast<double>(i * 7 % 10));
  return tensor({rows, 8}, values, DType::i32);
}

Tensor run(Model& model, Context context) {
  if (model.reads_source()) context.source.ids = some_ids();
  return model(some_ids(), context);
}

// The standard deviation of a parameter's elements.
double deviation_of(Model& model, const std::string& path) {
  double squares = 0;
  const auto values = model.parameter(path).value.values();
  for (const double v : values) squares += v * v;
  return std::sqrt(squares / static_cast<double>(values.size()));
}

// The weights whose product is added to the residual stream.
bool adds_to_residual(const std::string& path) {
  return path.ends_with(".output.weight") || path.ends_with(".mlp.down.weight");
}

// GPT-2's initialization: residual projections are scaled by 1/sqrt(number of residual branches), so the
// variance of their sum does not grow with depth.
TEST(TransformerConfig, WhatIsAddedToTheResidualStreamStartsSmallerInADeeperModel) {
  for (const char* mlp : {"feed_forward", "swiglu"})
    for (const int64_t layers : {1, 4})
      for (const int64_t encoder_layers : {0, 2}) {
        Module root;
        TransformerConfig c = {.vocab_size = 10,
                               .n_layers = layers,
                               .n_encoder_layers = encoder_layers,
                               .n_heads = 2,
                               .d_model = 64};
        c.mlp = mlp, c.init_std = 0.1;
        Transformer model{&root, "", c};
        for (Parameter* p : model.parameters()) {
          if (p->value.rank() != 2) continue;
          const bool encoder = p->path.starts_with("encoder.");
          const double additions =
              static_cast<double>(encoder ? 2 * encoder_layers : (encoder_layers ? 3 : 2) * layers);
          const double right = adds_to_residual(p->path) ? 0.1 / std::sqrt(additions) : 0.1;
          EXPECT_NEAR(deviation_of(model, p->path), right, 0.12 * right)
              << p->path << " of " << layers << " layers";
        }
      }
}

// Counts the values of eps that the kernels receive, for every norm, QK-norm included.
TEST(TransformerConfig, NormEpsReachesEveryNorm) {
  static std::map<double, int> layer, rms;
  const ScopedKernels plant({}, DType::f32, [](KernelTable& table) {
    static const auto layer_norm = table.layer_norm.run;
    static const auto rms_norm = table.rms_norm.run;
    table.layer_norm.run = [](View x, View w, View b, double eps, MutView y, MutView stats) {
      ++layer[eps];
      layer_norm(x, w, b, eps, y, stats);
    };
    table.rms_norm.run = [](View x, View w, double eps, MutView y, MutView stats) {
      ++rms[eps];
      rms_norm(x, w, eps, y, stats);
    };
  });
  for (const char* norm : {"layer_norm", "rms_norm"})
    for (const int64_t encoder_layers : {0, 1}) {
      layer.clear(), rms.clear();
      TransformerConfig c = small();
      c.n_encoder_layers = encoder_layers, c.norm = norm, c.norm_eps = 0.125;
      c.attention = MultiHead{{.qk_norm = true}};
      Module root;
      Transformer model{&root, "", c};
      run(model, {});
      // Two norms per block, a third with cross-attention, and a final one; two QK-norms per attention layer.
      const int blocks = encoder_layers ? 2 * 3 + 1 + 2 + 1 : 2 * 2 + 1;
      const int heads = 2 * (encoder_layers ? 2 * 2 + 1 : 2);
      const bool all_rms = c.norm == "rms_norm";
      EXPECT_EQ(layer, (all_rms ? std::map<double, int>{} : std::map<double, int>{{0.125, blocks}}));
      EXPECT_EQ(rms, (std::map<double, int>{{0.125, heads + (all_rms ? blocks : 0)}}));
    }
}

// Counts the dropout rates that the kernels receive, for embeddings, attention weights and residual branches.
TEST(TransformerConfig, DropoutIsDrawnAtEveryPlaceAndOnlyInTraining) {
  static std::map<double, int> elements, attentions;
  static std::set<std::pair<uint64_t, uint64_t>> keys;
  const ScopedKernels plant({}, DType::f32, [](KernelTable& table) {
    static const auto dropout = table.dropout.run;
    static const auto attention = table.attention.run;
    table.dropout.run = [](View x, double p, RandomKey key, MutView y) {
      ++elements[p];
      keys.insert({key.key, key.counter});
      dropout(x, p, key, y);
    };
    table.attention.run = [](const kernel::Attention& a) {
      ++attentions[a.dropout];
      if (a.dropout > 0) keys.insert({a.key.key, a.key.counter});
      attention(a);
    };
  });
  for (const char* mlp : {"feed_forward", "swiglu"})
    for (const char* position : {"learned", "sinusoidal", "rope", "none"})
      for (const int64_t encoder_layers : {0, 1}) {
        TransformerConfig c = small();
        c.n_encoder_layers = encoder_layers, c.mlp = mlp, c.position = position, c.dropout = 0.25;
        Module root;
        Transformer model{&root, "", c};
        const std::string what = std::string(mlp) + " " + position;
        // One for the embeddings, two per block, a third with cross-attention.
        const int blocks = encoder_layers ? 1 + 2 * 3 + 1 + 2 : 1 + 2 * 2;
        const int weights = encoder_layers ? 2 * 2 + 1 : 2;
        elements.clear(), attentions.clear(), keys.clear();
        run(model, {.training = true, .random = {.seed = 1}});
        EXPECT_EQ(elements, (std::map<double, int>{{0.25, blocks}})) << what;
        EXPECT_EQ(attentions, (std::map<double, int>{{0.25, weights}})) << what;
        EXPECT_EQ(keys.size(), static_cast<size_t>(blocks + weights)) << "no two draws are alike";
        elements.clear(), attentions.clear();
        run(model, {});
        EXPECT_TRUE(elements.empty()) << what;
        EXPECT_EQ(attentions, (std::map<double, int>{{0.0, weights}})) << what;
      }
}

TEST(TransformerConfig, TheSumOfTokensAndPositionsIsDropped) {
  for (const char* position : {"learned", "sinusoidal", "none"}) {
    TransformerConfig c = small();
    c.dropout = 0.25, c.position = position, c.d_model = 64;
    Module root;
    Transformer model{&root, "", c};
    Context plain, training{.training = true, .random = {.seed = 1}};
    const auto whole = model.embed(some_ids(), plain).values(),
               dropped = model.embed(some_ids(), training).values();
    int zeros = 0;
    for (size_t i = 0; i < whole.size(); ++i) {
      zeros += dropped[i] == 0;
      EXPECT_NEAR(dropped[i], dropped[i] == 0 ? 0 : whole[i] / 0.75, 1e-6) << position;
    }
    EXPECT_NEAR(zeros, 256, 60) << position << ": of 1024";
  }
}

// Collects the names of a config's keys and changes one value.
struct KeyChange final {
  std::string wanted;
  std::vector<std::string> names;

  template <class T, class... Rest>
  void operator()(const char* key, T& value, const Rest&...) {
    names.push_back(key);
    if (key == wanted) change(value, key);
  }
  template <class Section>
  void section(const char*, Section&, const char*) {}
  void renamed(const char*, const char*) {}
  template <class Kind>
  void choice(const char* key, Choice<Kind>& part, const char*) {
    names.push_back(key);
    if (key != wanted) return;
    if constexpr (std::is_same_v<Kind, AttentionKind>)
      part = MultiHead{};
    else if constexpr (std::is_same_v<Kind, PositionKind>)
      part = "rope_interleaved";
    else
      part = std::is_same_v<Kind, NormKind> ? "rms_norm" : "swiglu";
  }

  static void change(bool& value, const std::string&) { value = !value; }
  static void change(int64_t& value, const std::string& key) {
    if (key == "n_encoder_layers") value = 1;
    else value = value == 0 ? 3 : 2 * value;
  }
  static void change(double& value, const std::string&) { value = value == 0 ? 0.5 : 3 * value; }
};

// The logits of a training pass, and the names and first values of the parameters. A larger block size shows
// in the accepted length.
std::string fingerprint(const TransformerConfig& c) {
  Module root;
  Transformer model{&root, "", c};
  Context context{.training = true, .random = {.seed = 1}};
  if (model.encoder) context.source.ids = some_ids();
  std::string all;
  for (Parameter* p : model.parameters()) all += p->path + p->value.describe() + "\n";
  for (const double v : model(some_ids(), context).values()) all += fmt::format("{} ", v);
  for (const int64_t time : {8, 16})
    all += error_of([&] {
      Context longer = context;
      if (model.encoder) longer.source.ids = some_ids();
      model(tensor({1, time}, std::vector<double>(static_cast<size_t>(time)), DType::i32), longer);
    }).substr(0, 20);
  return all;
}

TEST(TransformerConfig, EveryKeyChangesTheModel) {
  TransformerConfig base = small();
  base.position = "rope", base.init_std = 0.3, base.attention = MultiHead{{.n_kv_heads = 2, .qk_norm = true}};
  KeyChange all;
  base.visit(all);
  EXPECT_GE(all.names.size(), 16u);
  const std::string before = fingerprint(base);
  EXPECT_EQ(fingerprint(base), before);
  for (const std::string& name : all.names) {
    TransformerConfig changed = base;
    KeyChange one{.wanted = name, .names = {}};
    changed.visit(one);
    EXPECT_NE(fingerprint(changed), before) << name << " changes nothing";
  }
  TransformerConfig changed = base;
  changed.position = RopeConfig{.theta = 100};
  std::set<std::string> prints = {fingerprint(changed)};
  for (const std::string& position : registry<PositionKind>().names()) {
    changed.position = position;
    prints.insert(fingerprint(changed));
  }
  EXPECT_EQ(prints.size(), 7u) << "some kinds of position are the same";
  changed = base;
  changed.mlp = Keys<FeedForwardConfig>{{.activation = "relu"}};
  EXPECT_NE(fingerprint(changed), before);
  for (const MultiHead& heads : {MultiHead{{.n_kv_heads = 1, .qk_norm = true}}, MultiHead{{.n_kv_heads = 2}},
                                 MultiHead{{.n_kv_heads = 2, .window = 2, .qk_norm = true}},
                                 MultiHead{{.n_kv_heads = 2, .qk_norm = true, .logit_softcap = 0.5}}}) {
    changed = base, changed.attention = heads;
    EXPECT_NE(fingerprint(changed), before);
  }
}

}  // namespace
}  // namespace bonsai::test
