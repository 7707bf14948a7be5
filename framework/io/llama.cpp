// Llama: its settings, and the mapping of its tensors to parameters.
#include "bonsai/framework/io/hugging_face.h"
#include "bonsai/framework/io/json_config.h"

namespace bonsai {

LlamaSettings llama_settings(const JsonConfig& config) {
  const int64_t hidden = config.size("hidden_size"), heads = config.size("num_attention_heads"),
                kv_heads = config.size("num_key_value_heads", heads);
  config.divisible("hidden_size", hidden, "num_attention_heads", heads);
  config.divisible("num_attention_heads", heads, "num_key_value_heads", kv_heads);
  config.only("head_dim", hidden / heads);
  config.only("attention_bias", false);
  config.only("mlp_bias", false);
  config.only("attention_dropout", 0.0);
  config.only<std::string>("hidden_act", "silu");
  // transformers 5 stores the rotary settings under rope_parameters, transformers 4 at the top level.
  const JsonConfig rope = config.below(config.has("rope_parameters") ? "rope_parameters" : "rope_scaling");
  for (const char* below : {"rope_parameters", "rope_scaling"})
    for (const char* key : {"rope_type", "type"}) config.below(below).only<std::string>(key, "default");
  return {.vocab_size = config.size("vocab_size"),
          .max_position_embeddings = config.size("max_position_embeddings"),
          .hidden_size = hidden,
          .intermediate_size = config.size("intermediate_size"),
          .num_hidden_layers = config.count("num_hidden_layers"),
          .num_attention_heads = heads,
          .num_key_value_heads = kv_heads,
          .rms_norm_eps = config.get("rms_norm_eps", 1e-6),
          .rope_theta = rope.get("rope_theta", config.get("rope_theta", 1e4)),
          .tied = config.get("tie_word_embeddings", false)};
}

std::vector<StoredWeight> llama_weights(const LlamaSettings& settings) {
  const int64_t width = settings.hidden_size, inner = settings.intermediate_size,
                kv_width = width / settings.num_attention_heads * settings.num_key_value_heads;
  std::vector<StoredWeight> all = {{"embed_tokens.weight", "token.weight", {settings.vocab_size, width}}};
  for (int64_t i = 0; i < settings.num_hidden_layers; ++i) {
    const auto add = [&](const std::string& stored, const std::string& path, const Shape& shape) {
      all.push_back(
          {fmt::format("layers.{}.{}.weight", i, stored), fmt::format("block.{}.{}.weight", i, path), shape});
    };
    add("input_layernorm", "norm_1", {width});
    add("self_attn.q_proj", "attention.query", {width, width});
    add("self_attn.k_proj", "attention.key", {kv_width, width});
    add("self_attn.v_proj", "attention.value", {kv_width, width});
    add("self_attn.o_proj", "attention.output", {width, width});
    add("post_attention_layernorm", "norm_2", {width});
    add("mlp.gate_proj", "mlp.gate", {inner, width});
    add("mlp.up_proj", "mlp.up", {inner, width});
    add("mlp.down_proj", "mlp.down", {width, inner});
  }
  all.push_back({"norm.weight", "norm.weight", {width}});
  if (!settings.tied) all.push_back({"lm_head.weight", "head.weight", {settings.vocab_size, width}});
  return all;
}

}  // namespace bonsai
