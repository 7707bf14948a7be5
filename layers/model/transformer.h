// A transformer that predicts the next token: a decoder, or an encoder-decoder that reads a source.
#pragma once

#include "bonsai/layers/attention/multi_head.h"
#include "bonsai/layers/encoder.h"
#include "bonsai/layers/model/model.h"

namespace bonsai {

struct TransformerConfig {
  int64_t vocab_size = 65;
  int64_t block_size = 64;
  int64_t n_layers = 4;
  int64_t n_encoder_layers = 0;
  int64_t n_heads = 4;
  int64_t d_model = 128;
  int64_t d_hidden = 0;
  double dropout = 0;
  Choice<AttentionKind> attention = {};
  Choice<FeedForwardKind> mlp = {};
  Choice<NormKind> norm = {};
  double norm_eps = 1e-5;
  Choice<PositionKind> position = {};
  bool bias = true;
  bool tie_embeddings = true;
  double init_std = kInitStd;
  template <class V>
  void visit(V& v) {
    v("vocab_size", vocab_size, "number of token ids", at_least(1));
    v("block_size", block_size, "maximum sequence length in tokens", at_least(1));
    visit_keys(v);
  }
  template <class V>
  void visit_keys(V& v) {  // keys that the run does not set
    v("n_layers", n_layers, "number of blocks", at_least(1));
    v("n_encoder_layers", n_encoder_layers,
      "number of blocks of the encoder, for tasks that have a source; 0: no encoder", at_least(0));
    v("n_heads", n_heads, "number of attention heads per block; divides d_model", at_least(1));
    v("d_model", d_model, "width of the residual stream", at_least(1));
    v("d_hidden", d_hidden,
      "hidden width of feed-forward layers; 0 chooses 4 * d_model, or 8/3 of d_model with a gate",
      at_least(0));
    v("dropout", dropout, "dropout of embeddings, attention weights and residual branches", between(0, 1));
    v.choice("attention", attention, "the attention of a block");
    for (const char* key : {"n_kv_heads", "window", "qk_norm"})
      v.renamed(key, (std::string("attention.") + key).c_str());
    v.renamed("soft_cap", "attention.logit_softcap");
    v.choice("mlp", mlp, "the feed-forward layer of a block");
    v.renamed("activation", "mlp.activation");
    v.choice("norm", norm, "the norm before each sublayer and after the last block");
    v("norm_eps", norm_eps, "added to the variance, inside the root", at_least(0));
    v.choice("position", position,
             "position information: added to token vectors (learned, sinusoidal) or used by attention");
    v.renamed("rope_theta", "position.theta");
    v("bias", bias, "whether projections and norms have biases");
    v("tie_embeddings", tie_embeddings, "whether the output head is the token table");
    v("init_std", init_std,
      "standard deviation of the initial weights; residual projections are scaled by "
      "1/sqrt(number of residual branches)",
      at_least(0));
    v.renamed("deviation", "init_std");
  }
};

// Returns a sentence that says which keys contradict each other, or "". Each key is in its range already.
std::string misfit(const TransformerConfig& c);
using TransformerKeys = Keys<TransformerConfig>;  // the keys in a run's config
// The transformer's keys in a run's model section. Throws Error if it is another model.
inline TransformerKeys& transformer(ModelConfig& c) { return c.kind.as<TransformerKeys>(); }
// Number of elements of all parameters. Builds only one block per stack.
double parameter_count(const TransformerConfig& c);

class Transformer final : public Model {
 public:
  Transformer(Module* parent, std::string name, const TransformerConfig& c);

  const TransformerConfig& config() const { return config_; }
  // True if the attention is cacheable and the feed-forward layer is position-wise. Otherwise, a pass with a
  // cache throws Error.
  bool cacheable() const override;
  std::vector<Layer*> position_wise_layers() override;
  bool attends() const override { return true; }
  bool sees_earlier() const override;
  bool reads_source() const override { return encoder != nullptr; }

  // forward calls embed, trunk and head in turn. With an encoder, trunk attends to context.source.features;
  // forward computes them by encode if they are undefined.
  Tensor encode(Context& context) override;                    // features (B,S,C) of context.source
  Tensor embed(const Tensor& ids, Context& context) override;  // i32 (B,T) -> (B,T,C)
  Tensor trunk(const Tensor& x, Context& context);             // (B,T,C) -> (B,T,C), normalised
  Tensor head(const Tensor& features, Context& context);       // (B,T,C) -> (B,T,V)
  Tensor from_embedding(const Tensor& x, Context& context) override {
    return head(trunk(x, context), context);
  }
  Tensor encode_embedding(const Tensor& x, Context& context) override { return encoder->trunk(x, context); }
  Tensor last_logits(const Tensor& ids, Context& context) override;

 protected:
  Tensor forward(const Tensor& ids, Context& context) override;

 private:
  TransformerConfig config_;

 public:
  Embedding token;
  Stack stack;
  std::unique_ptr<Encoder> encoder;  // null if n_encoder_layers is 0

 private:
  std::unique_ptr<Linear> head_;  // null with tie_embeddings
};

}  // namespace bonsai
