// Hugging Face directories: config.json and model.safetensors.
//
// This file converts their layouts: in the rest of Bonsai each projection is one matrix (out, in). GPT-2's
// projections are "Conv1D", stored as (in, out), and its query, key and value are side by side in one matrix,
// c_attn.
#pragma once

#include <filesystem>
#include <string>
#include <variant>
#include <vector>

#include "bonsai/framework/io/safetensors.h"

namespace bonsai {

// The settings in config.json under the names that each kind of model uses. `activation` is the name of an
// op.
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

// Maps a part of a stored tensor to one of Bonsai's parameters.
struct StoredWeight {
  std::string stored;       // "h.0.attn.c_attn.weight"
  std::string path;         // "block.0.attention.key.weight"
  Shape shape;              // the stored tensor's, according to the settings
  bool transposed = false;  // stored as (in, out)
  int part = 0, parts = 1;  // which of `parts` equal parts of the stored columns
};

// Extracts the part of a stored tensor, or of its gradient, in Bonsai's layout.
Tensor stored_part(const Tensor& stored, const StoredWeight& weight);

class HuggingFaceDirectory {
 public:
  // Throws if the kind or a setting is not supported, if a weight is missing or unknown, or if its shape
  // disagrees with the settings. A model built from the settings is therefore no larger than the file.
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
  std::string path_;  // model.safetensors
};

// Per kind: reads its settings from config.json, and maps its tensors to parameters.
class JsonConfig;
Gpt2Settings gpt2_settings(const JsonConfig& config);
std::vector<StoredWeight> gpt2_weights(const Gpt2Settings& settings);
LlamaSettings llama_settings(const JsonConfig& config);
std::vector<StoredWeight> llama_weights(const LlamaSettings& settings);

}  // namespace bonsai
