// Hugging Face directories of GPT-2: config.json beside model.safetensors.
//
// There, projections are "Conv1D": weights (in, out), and query, key and value lie side by side in one
// matrix, c_attn. Here is where that layout ends: everything else knows (out, in) and one matrix a
// projection.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "framework/io/safetensors.h"

namespace bonsai {

// config.json, in GPT-2's words; the activation is named as the op.
struct Gpt2Settings {
  int64_t vocab_size, n_positions, n_embd, n_layer, n_head, n_inner;  // n_inner 0: 4 * n_embd
  std::string activation;
  double layer_norm_epsilon;
  double embd_pdrop, attn_pdrop, resid_pdrop;
  bool tied;
};

// One of Bonsai's parameters as a part of a stored tensor.
struct Gpt2Weight {
  std::string stored;       // "h.0.attn.c_attn.weight"
  std::string path;         // "block.0.attention.key.weight"
  bool transposed = false;  // stored (in, out)
  int part = 0, parts = 1;  // of the stored columns, in equal parts
};
std::vector<Gpt2Weight> gpt2_weights(const Gpt2Settings& settings);

// The part of a stored tensor, or of its gradient, in Bonsai's layout.
Tensor gpt2_part(const Tensor& stored, const Gpt2Weight& weight);

class Gpt2Directory {
 public:
  // Checks that the settings are ones Bonsai has and that every weight is there.
  explicit Gpt2Directory(const std::filesystem::path& directory);

  const Gpt2Settings& settings() const { return settings_; }
  const std::vector<Gpt2Weight>& weights() const { return weights_; }
  Tensor read(const Gpt2Weight& weight, DType as) const;

 private:
  std::string stored_name(const Gpt2Weight& weight) const;  // with or without "transformer."

  Gpt2Settings settings_;
  std::vector<Gpt2Weight> weights_;
  SafetensorsFile file_;
};

}  // namespace bonsai
