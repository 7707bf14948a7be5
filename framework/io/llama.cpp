// Llama: its settings, and where its tensors go.
#include "framework/io/hugging_face.h"
#include "framework/io/json_config.h"

namespace bonsai {

LlamaSettings llama_settings(const JsonConfig& config) {
  const int64_t hidden = config.size("hidden_size"), heads = config.size("num_attention_heads");
  check(config.get<int64_t>("head_dim", hidden / heads) * heads == hidden, config.path(),
        "head_dim is not hidden_size / num_attention_heads, which Bonsai's heads are");
  check(!config.get("attention_bias", false) && !config.get("mlp_bias", false), config.path(),
        "has attention_bias or mlp_bias; Llama's projections are read without");
  check(config.get("attention_dropout", 0.0) == 0, config.path(), "has dropout of attention alone; Bonsai's decoder has one dropout for all");
  const std::string activation = config.get<std::string>("hidden_act", "silu");
  check(activation == "silu", config.path(), "hidden_act is '{}'; only silu is read", activation);
  // transformers 5 keeps the rotary settings below rope_parameters, 4 beside the others.
  const JsonConfig rope = config.below(config.has("rope_parameters") ? "rope_parameters" : "rope_scaling");
  const std::string type = rope.get<std::string>(rope.has("rope_type") ? "rope_type" : "type", "default");
  check(type == "default", config.path(), "the rotary positions are scaled ('{}'), which Bonsai does not do",
        type);
  return {.vocab_size = config.size("vocab_size"),
          .max_position_embeddings = config.size("max_position_embeddings"),
          .hidden_size = hidden,
          .intermediate_size = config.size("intermediate_size"),
          .num_hidden_layers = config.size("num_hidden_layers"),
          .num_attention_heads = heads,
          .num_key_value_heads = config.get<int64_t>("num_key_value_heads", heads),
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
