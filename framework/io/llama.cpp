// Llama: its settings, and where its tensors go.
#include "framework/io/hugging_face.h"
#include "framework/io/json_config.h"

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
  // transformers 5 keeps the rotary settings below rope_parameters, 4 beside the others.
  const JsonConfig rope = config.below(config.has("rope_parameters") ? "rope_parameters" : "rope_scaling");
  for (const char* below : {"rope_parameters", "rope_scaling"})
    for (const char* key : {"rope_type", "type"}) config.below(below).only<std::string>(key, "default");
  return {.vocab_size = config.size("vocab_size"),
          .max_position_embeddings = config.size("max_position_embeddings"),
          .hidden_size = hidden,
          .intermediate_size = config.size("intermediate_size"),
          .num_hidden_layers = config.size("num_hidden_layers"),
          .num_attention_heads = heads,
          .num_key_value_heads = kv_heads,
          .rms_norm_eps = config.get("rms_norm_eps", 1e-6),
          .rope_theta = rope.get("rope_theta", config.get("rope_theta", 1e4)),
          .tied = config.get("tie_word_embeddings", false)};
}

std::vector<StoredWeight> llama_weights(const LlamaSettings& settings) {
  std::vector<StoredWeight> all = {{"embed_tokens.weight", "token.weight"}};
  for (int64_t i = 0; i < settings.num_hidden_layers; ++i) {
    const std::string from = "layers." + std::to_string(i) + ".", to = "block." + std::to_string(i) + ".";
    for (const auto& [stored, path] :
         std::initializer_list<std::pair<const char*, const char*>>{{"input_layernorm", "norm_1"},
                                                                    {"self_attn.q_proj", "attention.query"},
                                                                    {"self_attn.k_proj", "attention.key"},
                                                                    {"self_attn.v_proj", "attention.value"},
                                                                    {"self_attn.o_proj", "attention.output"},
                                                                    {"post_attention_layernorm", "norm_2"},
                                                                    {"mlp.gate_proj", "mlp.gate"},
                                                                    {"mlp.up_proj", "mlp.up"},
                                                                    {"mlp.down_proj", "mlp.down"}})
      all.push_back({from + stored + ".weight", to + path + ".weight"});
  }
  all.push_back({"norm.weight", "norm.weight"});
  if (!settings.tied) all.push_back({"lm_head.weight", "head.weight"});
  return all;
}

}  // namespace bonsai
