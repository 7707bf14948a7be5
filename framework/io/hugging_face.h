// Hugging Face directories: config.json beside model.safetensors.
//
// Here is where their layouts end: everything else knows projections as (out, in), and one matrix each. GPT-2's are
// "Conv1D": stored (in, out), with query, key and value side by side in one matrix, c_attn.
#pragma once

#include <filesystem>
#include <string>
#include <variant>
#include <vector>

#include "bonsai/framework/io/safetensors.h"

namespace bonsai {

// config.json, in the words of each kind; activations are named as their op.
struct Gpt2Settings {
  int64_t vocab_size, n_positions, n_embd, n_layer, n_head, n_inner;  // n_inner 0: 4 * n_embd
  std::string activation;
  double layer_norm_epsilon, dropout;
  bool tied;
};

struct LlamaSettings {
  int64_t vocab_size, max_position_embeddings, hidden_size, intermediate_size;
  int64_t num_hidden_layers, num_attention_heads, num_key_value_heads;
  double rms_norm_eps, rope_theta;
  bool tied;
};

// One of Bonsai's parameters as a part of a stored tensor.
struct StoredWeight {
  std::string stored;       // "h.0.attn.c_attn.weight"
  std::string path;         // "block.0.attention.key.weight"
  Shape shape;              // of the stored tensor, by the settings
  bool transposed = false;  // stored (in, out)
  int part = 0, parts = 1;  // of the stored columns, in equal parts
};

// The part of a stored tensor, or of its gradient, in Bonsai's layout.
Tensor stored_part(const Tensor& stored, const StoredWeight& weight);

class HuggingFaceDirectory {
 public:
  // Checks that it is of a kind and with settings that Bonsai has, and that every weight is there, in the shape that
  // the settings say, and no other: what is built from the settings is then no larger than the file.
  explicit HuggingFaceDirectory(const std::filesystem::path& directory);

  const std::variant<Gpt2Settings, LlamaSettings>& settings() const { return settings_; }
  const std::vector<StoredWeight>& weights() const { return weights_; }
  std::string stored_name(const StoredWeight& weight) const;  // with or without the kind's prefix
  Tensor read(const StoredWeight& weight, DType as) const;

 private:
  std::variant<Gpt2Settings, LlamaSettings> settings_;
  std::string prefix_;
  std::vector<StoredWeight> weights_;
  SafetensorsFile file_;
  std::string path_;  // of that file
};

// Each kind: its settings from config.json, and where its tensors go.
class JsonConfig;
Gpt2Settings gpt2_settings(const JsonConfig& config);
std::vector<StoredWeight> gpt2_weights(const Gpt2Settings& settings);
LlamaSettings llama_settings(const JsonConfig& config);
std::vector<StoredWeight> llama_weights(const LlamaSettings& settings);

}  // namespace bonsai
