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
  Position* shared_position = nullptr;  // in place of `position`: the stack's
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
    v("causal", causal, "whether a position sees only itself and what came before");
    v("cross", cross, "whether keys and values are a source's, with its padding and documents");
    v.choice("position", position, "how attention knows positions");
    v("norm_eps", norm_eps, "of that norm", at_least(0));
    v("scale", scale, "factor of the scores; 0 chooses 1 / sqrt(head width)", at_least(0));
    v("bias", bias, "biases of the query, key and value projections");
    v("output_bias", output_bias, "bias of the output projection");
    v("attention_dropout", attention_dropout, "dropout of the attention weights", between(0, 1));
    v("residual_dropout", residual_dropout, "dropout of the output", between(0, 1));
    v("init_std", init_std, "standard deviation of the first query, key and value weights", at_least(0));
    v("output_init_std", output_init_std, "standard deviation of the first output weights", at_least(0));
    v("model_parallel_size", model_parallel_size, "ranks that have some of the heads each", at_least(1));
    v("rank", rank, "which of them this is", at_least(0));
  }
  template <class V>
  void visit_keys(V& v) {  // what the model does not set
    v("n_kv_heads", n_kv_heads, "key/value heads, each shared by n_heads / n_kv_heads heads; 0: as many as n_heads",
      at_least(0));
    v("window", window, kWindow, at_least(0));
    v("qk_norm", qk_norm, "whether queries and keys are normalised per head");
    v("logit_softcap", logit_softcap, kLogitSoftcap, between(0, 1e6));
  }
};

std::string misfit(const MultiHeadAttentionConfig& c);
using MultiHead = Keys<MultiHeadAttentionConfig>;  // the part of a model

// Query, key and value inputs are given separately: the same tensor three times is self-attention;
// keys and values from another sequence are cross-attention, which `cross` tells of where the context has padding,
// documents or a cache: they are then the source's, and its keys and values are cached once. A source has no positions
// to compare with, so `cross` takes none, and neither `causal` nor `window`.
//
// Without `cross` the last query stands where the last key stands, for masks, ALiBi and rotary positions: the first
// key at the context's first_position, or the first cached one at 0.
//
// One of `model_parallel_size` ranks is built alone and has the weights of its own heads, cut from the whole layer's
// of the same seed and path: rows of the query, key and value projections, columns of the output projection. Shapes
// at the outside are the whole's, a bias and the weights given back are of the rank's own heads. To be added up over
// the ranks: their outputs (rank 0 adds the output's bias), the gradients of the inputs, and those of the gains of
// qk_norm, which every rank has. Ranks may share a cache and Context::weights, where a rank's name is its path, '#' and
// its number; each is given a copy of the random stream.   Shoeybi et al. 2019, arXiv:1909.08053
class MultiHeadAttention final : public AttentionLayer {
 public:
  MultiHeadAttention(Module* parent, std::string name, const MultiHeadAttentionConfig& c);

  // query (B,Tq,d_model), key (B,Tk,d_key), value (B,Tk,d_value) -> (B,Tq,d_model)
  Tensor operator()(const Tensor& query, const Tensor& key, const Tensor& value, Context& context,
                    const Tensor& bias = {}) override;
  // The same with the weights (B,H,Tq,Tk).
  AttentionResult with_weights(const Tensor& query, const Tensor& key, const Tensor& value, Context& context,
                               const Tensor& bias = {});

 private:
  struct Projected {
    Tensor q, k, v;
    AttentionOptions options;
  };
  Projected project(const Tensor& q, const Tensor& k, const Tensor& v, Context& context, const Tensor& bias);
  // Heads side by side, (B,T,n*D), normalised and turned as the config says, the first row as at `first`.
  Tensor placed(const Tensor& x, int64_t n_heads, int64_t first, RMSNorm* norm, Context& context);
  std::string kept_as() const;  // the name of what this rank has in a cache or among the weights

  MultiHeadAttentionConfig config_;

 public:
  Linear query, key, value;

 private:
  std::unique_ptr<RMSNorm> query_norm_, key_norm_;  // null without qk_norm
  std::unique_ptr<Position> own_position_;          // null if the stack has it
  Position* position_;

 public:
  ScaledDotProductAttention attention;
  Linear output;
  Dropout residual_dropout;
};

}  // namespace bonsai
