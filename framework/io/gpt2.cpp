// GPT-2: its settings, and the mapping of its tensors to parameters.
#include "bonsai/framework/io/hugging_face.h"
#include "bonsai/framework/io/json_config.h"

namespace bonsai {
namespace {

std::string activation_op(const JsonConfig& config) {
  const std::string name = config.get<std::string>("activation_function", "gelu_new");
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return "gelu_tanh";
  for (const char* same : {"gelu", "relu", "silu", "tanh"})
    if (name == same) return name;
  fail(config.path(), "activation_function '{}' is not supported", escaped(name));
}

}  // namespace

Gpt2Settings gpt2_settings(const JsonConfig& config) {
  const int64_t width = config.size("n_embd"), heads = config.size("n_head");
  config.divisible("n_embd", width, "n_head", heads);
  config.only("scale_attn_by_inverse_layer_idx", false);
  config.only("scale_attn_weights", true);
  config.only("add_cross_attention", false);
  const double dropout = config.get("resid_pdrop", 0.1);
  for (const char* other : {"embd_pdrop", "attn_pdrop"})
    check(config.get(other, 0.1) == dropout, config.path(),
          "{} is {} but resid_pdrop is {}; Bonsai supports only one dropout rate", other,
          config.get(other, 0.1), dropout);
  return {.vocab_size = config.size("vocab_size"),
          .n_positions = config.size("n_positions"),
          .n_embd = width,
          .n_layer = config.count("n_layer"),
          .n_head = heads,
          .n_inner = config.has("n_inner") ? config.size("n_inner") : 0,
          .activation = activation_op(config),
          .layer_norm_epsilon = config.get("layer_norm_epsilon", 1e-5),
          .dropout = dropout,
          .tied = config.get("tie_word_embeddings", true)};
}

std::vector<StoredWeight> gpt2_weights(const Gpt2Settings& settings) {
  const int64_t width = settings.n_embd, inner = settings.n_inner ? settings.n_inner : 4 * width;
  std::vector<StoredWeight> all = {{"wte.weight", "token.weight", {settings.vocab_size, width}},
                                   {"wpe.weight", "position.weight", {settings.n_positions, width}}};
  const auto norm = [&](const std::string& stored, const std::string& path) {
    all.push_back({stored + ".weight", path + ".weight", {width}});
    all.push_back({stored + ".bias", path + ".bias", {width}});
  };
  const auto linear = [&](const std::string& stored, const std::string& path, int64_t in, int64_t out,
                          int part = 0, int parts = 1) {
    all.push_back({stored + ".weight", path + ".weight", {in, out}, true, part, parts});
    all.push_back({stored + ".bias", path + ".bias", {out}, false, part, parts});
  };
  for (int64_t i = 0; i < settings.n_layer; ++i) {
    const std::string from = "h." + std::to_string(i) + ".", to = "block." + std::to_string(i) + ".";
    norm(from + "ln_1", to + "norm_1");
    linear(from + "attn.c_attn", to + "attention.query", width, 3 * width, 0, 3);
    linear(from + "attn.c_attn", to + "attention.key", width, 3 * width, 1, 3);
    linear(from + "attn.c_attn", to + "attention.value", width, 3 * width, 2, 3);
    linear(from + "attn.c_proj", to + "attention.output", width, width);
    norm(from + "ln_2", to + "norm_2");
    linear(from + "mlp.c_fc", to + "mlp.up", width, inner);
    linear(from + "mlp.c_proj", to + "mlp.down", inner, width);
  }
  norm("ln_f", "norm");
  if (!settings.tied) all.push_back({"lm_head.weight", "head.weight", {settings.vocab_size, width}});
  return all;
}

}  // namespace bonsai
