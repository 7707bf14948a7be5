// A transformer that writes: ids in, logits of the next id out. A decoder alone, or one that reads a source through an
// encoder.
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
    v("block_size", block_size, "longest sequence", at_least(1));
    visit_keys(v);
  }
  template <class V>
  void visit_keys(V& v) {  // what the run does not set
    v("n_layers", n_layers, "number of blocks", at_least(1));
    v("n_encoder_layers", n_encoder_layers, "blocks of an encoder, which reads the source of a task that has one", at_least(0));
    v("n_heads", n_heads, "attention heads a block; divides d_model", at_least(1));
    v("d_model", d_model, "width of the residual stream", at_least(1));
    v("d_hidden", d_hidden, "width inside the feed-forward layers; 0 chooses 4 * d_model, or 8/3 of it with a gate", at_least(0));
    v("dropout", dropout, "dropout of embeddings, attention weights and residual additions", between(0, 1));
    v.choice("attention", attention, "what a block attends with");
    for (const char* key : {"n_kv_heads", "window", "qk_norm"}) v.renamed(key, (std::string("attention.") + key).c_str());
    v.renamed("soft_cap", "attention.logit_softcap");
    v.choice("mlp", mlp, "the sublayer after attention");
    v.renamed("activation", "mlp.activation");
    v.choice("norm", norm, "the norm before each sublayer and after the last block");
    v("norm_eps", norm_eps, "added to the variance, inside the root", at_least(0));
    v.choice("position", position,
             "how positions are known: added to token vectors (learned, sinusoidal) or told to attention");
    v.renamed("rope_theta", "position.theta");
    v("bias", bias, "biases of projections and norms");
    v("tie_embeddings", tie_embeddings, "whether the head is the token table");
    v("init_std", init_std,
      "standard deviation of the initial weights; residual projections are scaled by 1/sqrt(number of residual branches)", at_least(0));
    v.renamed("deviation", "init_std");
  }
};

// What does not fit together in a config whose values are all in range, as a sentence; empty where all does.
std::string misfit(const TransformerConfig& c);
using TransformerKeys = Keys<TransformerConfig>;  // the model of a run
// The keys of a run's model; Error if it is another model.
inline TransformerKeys& transformer(ModelConfig& c) { return c.kind.as<TransformerKeys>(); }
// Elements of all parameters: those of one block times their number, and the rest.
double parameter_count(const TransformerConfig& c);

class Transformer final : public Model {
 public:
  Transformer(Module* parent, std::string name, const TransformerConfig& c);

  const TransformerConfig& config() const { return config_; }
  // A cache holds all that later tokens need if attention keeps what it needs there and every other layer is
  // position-wise. Otherwise a pass with a cache is an Error.
  bool cacheable() const override;
  std::vector<Layer*> position_wise_layers() override;
  bool attends() const override { return true; }
  bool sees_earlier() const override;
  bool reads_source() const override { return encoder != nullptr; }

  // forward is these in turn; the parts are for whatever needs the embeddings or the features. With an encoder, trunk
  // attends to context.source.features; where they are undefined, forward makes them by encode.
  Tensor encode(Context& context) override;                    // of context.source: (B,S,C)
  Tensor embed(const Tensor& ids, Context& context) override;  // i32 (B,T) -> (B,T,C)
  Tensor trunk(const Tensor& x, Context& context);             // (B,T,C) -> (B,T,C), normalised
  Tensor head(const Tensor& features, Context& context);       // (B,T,C) -> (B,T,V)
  Tensor from_embedding(const Tensor& x, Context& context) override { return head(trunk(x, context), context); }
  Tensor encode_embedding(const Tensor& x, Context& context) override { return encoder->trunk(x, context); }
  Tensor last_logits(const Tensor& ids, Context& context) override;

 protected:
  Tensor forward(const Tensor& ids, Context& context) override;

 private:
  TransformerConfig config_;

 public:
  Embedding token;
  Stack stack;
  std::unique_ptr<Encoder> encoder;  // null without

 private:
  std::unique_ptr<Linear> head_;  // null where tied
};

}  // namespace bonsai
