// Multi-head attention: scaled dot-product attention per head, between projections.
//                                                              Vaswani et al. 2017, arXiv:1706.03762
#pragma once

#include "bonsai/layers/attention/scaled_dot_product.h"
#include "bonsai/layers/linear.h"
#include "bonsai/layers/norm/rms_norm.h"
#include "bonsai/layers/registry.h"

namespace bonsai {

struct MultiHeadAttentionConfig {
  int64_t d_model = 1;
  int64_t n_heads = 1;
  int64_t n_kv_heads = 0;
  int64_t d_key = 0;
  int64_t d_value = 0;
  bool causal = false;
  bool cross = false;
  int64_t window = 0;
  Choice<PositionKind> position = "none";
  Position* shared_position = nullptr;  // the position part of the stack, used instead of `position`
  bool qk_norm = false;
  double norm_eps = 1e-6;
  double logit_softcap = 0;
  double scale = 0;
  bool bias = true;
  bool output_bias = true;
  double attention_dropout = 0;
  double residual_dropout = 0;
  double init_std = kInitStd;
  double output_init_std = kInitStd;
  int64_t model_parallel_size = 1;
  int64_t rank = 0;
  template <class V>
  void visit(V& v) {
    v("d_model", d_model, "width of the queries and of the output", at_least(1));
    v("n_heads", n_heads, "number of heads; divides d_model", at_least(1));
    visit_keys(v);
    v("d_key", d_key, "width of the key input; 0 chooses d_model", at_least(0));
    v("d_value", d_value, "width of the value input; 0 chooses d_model", at_least(0));
    v("causal", causal, "whether later positions are hidden");
    v("cross", cross, "whether keys, values and masks are those of a source");
    v.choice("position", position, "position information used by attention");
    v("norm_eps", norm_eps, "epsilon of QK-norm", at_least(0));
    v("scale", scale, "factor of the scores; 0 chooses 1 / sqrt(head width)", at_least(0));
    v("bias", bias, "biases of the query, key and value projections");
    v("output_bias", output_bias, "bias of the output projection");
    v("attention_dropout", attention_dropout, "dropout of the attention weights", between(0, 1));
    v("residual_dropout", residual_dropout, "dropout of the output", between(0, 1));
    v("init_std", init_std, "standard deviation of the initial query, key and value weights", at_least(0));
    v("output_init_std", output_init_std, "standard deviation of the initial output weights", at_least(0));
    v("model_parallel_size", model_parallel_size, "number of ranks that share the heads", at_least(1));
    v("rank", rank, "rank of this part of the layer", at_least(0));
  }
  template <class V>
  void visit_keys(V& v) {  // keys that the model does not set
    v("n_kv_heads", n_kv_heads,
      "number of key/value heads, each shared by n_heads / n_kv_heads heads; 0 chooses n_heads", at_least(0));
    v("window", window, kWindow, at_least(0));
    v("qk_norm", qk_norm, "whether queries and keys are normalised per head");
    v("logit_softcap", logit_softcap, kLogitSoftcap, between(0, 1e6));
  }
};

// Which keys contradict each other, as a sentence; empty if none do.
std::string misfit(const MultiHeadAttentionConfig& c);
using MultiHead = Keys<MultiHeadAttentionConfig>;  // the keys in a model's config

// Query, key and value inputs are separate arguments. Passing the same tensor three times is self-attention;
// keys and values of another sequence are cross-attention. `cross` takes padding mask and segment ids from
// context.source and caches the source's keys and values once. Its positions cannot be compared with those of
// the queries, so `cross` excludes `position`, `causal` and `window`.
//
// Without `cross`, the last query has the position of the last key, for masks, ALiBi and RoPE. The first key
// has position context.first_position, or 0 if it is cached.
//
// With model_parallel_size > 1, a rank builds only its own heads. Their weights are a shard of the whole
// layer's for the same seed and path: rows of the query, key and value projections, columns of the output
// projection. Inputs and outputs have the shapes of the whole layer; an attention bias and returned attention
// weights have only the rank's heads. Sums over the ranks are left to the caller: of outputs (rank 0 adds the
// output bias), of input gradients, and of the gradients of the QK-norm gains, which every rank has. Ranks
// may share a cache and Context::weights, in which the name of a rank is "path#rank". Each rank needs a copy
// of the random stream.
//                                                              Shoeybi et al. 2019, arXiv:1909.08053
class MultiHeadAttention final : public AttentionLayer {
 public:
  MultiHeadAttention(Module* parent, std::string name, const MultiHeadAttentionConfig& c);

  // query (B,Tq,d_model), key (B,Tk,d_key), value (B,Tk,d_value) -> (B,Tq,d_model)
  Tensor operator()(const Tensor& query, const Tensor& key, const Tensor& value, Context& context,
                    const Tensor& bias = {}) override;
  // Also returns the attention weights (B,H,Tq,Tk).
  AttentionResult with_weights(const Tensor& query, const Tensor& key, const Tensor& value, Context& context,
                               const Tensor& bias = {});

 private:
  struct Projected {
    Tensor q, k, v;
    AttentionOptions options;
  };
  Projected project(const Tensor& q, const Tensor& k, const Tensor& v, Context& context, const Tensor& bias);
  // Applies QK-norm (if norm is set) and RoPE to x (B,T,n_heads*D), whose first row has position `first`.
  Tensor placed(const Tensor& x, int64_t n_heads, int64_t first, RMSNorm* norm, Context& context);
  std::string kept_as() const;  // name of this rank's entry in a cache and in Context::weights

  MultiHeadAttentionConfig config_;

 public:
  Linear query, key, value;

 private:
  std::unique_ptr<RMSNorm> query_norm_, key_norm_;  // null without qk_norm
  std::unique_ptr<Position> own_position_;          // null if the stack's position part is used
  Position* position_;

 public:
  ScaledDotProductAttention attention;
  Linear output;
  Dropout residual_dropout;
};

}  // namespace bonsai
