#include "bonsai/layers/pretrained.h"

#include "bonsai/framework/autograd/fill.h"
#include "bonsai/layers/feed_forward/feed_forward.h"
#include "bonsai/layers/position/rope.h"

namespace bonsai {

namespace {

TransformerConfig config_of(const Gpt2Settings& s) {
  return {.vocab_size = s.vocab_size,
          .block_size = s.n_positions,
          .n_layers = s.n_layer,
          .n_heads = s.n_head,
          .d_model = s.n_embd,
          .d_hidden = s.n_inner,
          .dropout = s.dropout,
          .mlp = Keys<FeedForwardConfig>{{.activation = s.activation}},
          .norm_eps = s.layer_norm_epsilon,
          .tie_embeddings = s.tied};
}

TransformerConfig config_of(const LlamaSettings& s) {
  TransformerConfig c;
  c.vocab_size = s.vocab_size, c.block_size = s.max_position_embeddings, c.d_model = s.hidden_size;
  c.n_layers = s.num_hidden_layers, c.n_heads = s.num_attention_heads;
  c.attention = MultiHead{{.n_kv_heads = s.num_key_value_heads}};
  c.norm = "rms_norm", c.norm_eps = s.rms_norm_eps;
  c.position = RopeConfig{s.rope_theta};
  c.bias = false, c.tie_embeddings = s.tied;
  c.mlp = "swiglu", c.d_hidden = s.intermediate_size;
  return c;
}

}  // namespace

TransformerConfig transformer_config(const HuggingFaceDirectory& directory) {
  return std::visit([](const auto& settings) { return config_of(settings); }, directory.settings());
}

void load_weights(const HuggingFaceDirectory& directory, Transformer& transformer) {
  const std::string prefix = transformer.path().empty() ? "" : transformer.path() + ".";
  std::vector<std::pair<Parameter*, Tensor>> read;  // all weights are read and checked before any is changed
  for (const StoredWeight& weight : directory.weights()) {
    Parameter& parameter = transformer.parameter(prefix + weight.path);
    read.emplace_back(&parameter, directory.read(weight, parameter.value.dtype()));
    check(read.back().second.shape() == parameter.value.shape(), "pretrained", "{} gives {} for {}",
          weight.stored, read.back().second, parameter.value);
  }
  check(read.size() == transformer.parameters().size(), "pretrained",
        "the directory gives {} of the model's {} parameters", read.size(), transformer.parameters().size());
  for (auto& [parameter, value] : read) copy_into(value, parameter->value);
}

}  // namespace bonsai
