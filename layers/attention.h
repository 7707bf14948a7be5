// Attention: scaled dot-product, and multi-head on top of it.   Vaswani et al. 2017, arXiv:1706.03762
//
//   weights = softmax(q k^T / sqrt(d_k) + mask)       each query asks every key how well they match
//   output  = weights v                               and takes that mixture of the values
#pragma once

#include "layers/dropout.h"
#include "layers/linear.h"
#include "layers/mask.h"

namespace bonsai {

struct ScaledDotProductAttentionConfig {
  bool causal = false;
  double dropout = 0;
  double scale = 0;
  template <class V>
  void visit(V& v) {
    v("causal", causal, "whether a position sees only itself and what came before");
    v("dropout", dropout, "dropout of the attention weights", between(0, 1));
    v("scale", scale, "factor of the scores; 0 chooses 1 / sqrt(d_k)", at_least(0));
  }
};

struct AttentionResult {
  Tensor output;   // like q, with the width of v
  Tensor weights;  // (...,Tq,Tk): each row sums to 1, or is 0 where a query sees no key
};

// q (...,Tq,d_k), k (...,Tk,d_k), v (...,Tk,d_v), with up to two leading axes: batch and heads. A mask
// is added to the scores (-inf: may not attend) and broadcasts to (...,Tq,Tk).
class ScaledDotProductAttention final : public Module {
 public:
  ScaledDotProductAttention(Module* parent, std::string name, const ScaledDotProductAttentionConfig& c = {});

  // One op that keeps no (Tq,Tk) tensor. Where the mask needs a gradient, the composed path runs.
  Tensor operator()(const Tensor& q, const Tensor& k, const Tensor& v, Context& context, const Tensor& mask = {});
  // The composed path, step by step, which also returns the weights (before dropout).
  AttentionResult with_weights(const Tensor& q, const Tensor& k, const Tensor& v, Context& context,
                               const Tensor& mask = {});
  // Heads side by side in the columns: q (B,Tq,H*d_k), k (B,Tk,H*d_k), v (B,Tk,H*d_v).
  Tensor heads_in_columns(const Tensor& q, const Tensor& k, const Tensor& v, int64_t n_heads, Context& context,
                          const Tensor& mask = {});

 private:
  Tensor fused(const Tensor& q, const Tensor& k, const Tensor& v, int64_t n_heads, Context& context,
               const Tensor& mask);

  ScaledDotProductAttentionConfig config_;
  CausalMask causal_mask_{this, "causal_mask"};
  Dropout dropout_;
};

struct MultiHeadAttentionConfig {
  int64_t d_model = 1;
  int64_t n_heads = 1;
  int64_t d_key = 0;
  int64_t d_value = 0;
  bool causal = false;
  bool bias = true;
  bool output_bias = true;
  double attention_dropout = 0;
  double residual_dropout = 0;
  double deviation = 0.02;
  double output_deviation = 0.02;
  template <class V>
  void visit(V& v) {
    v("d_model", d_model, "width of the queries and of the output", at_least(1));
    v("n_heads", n_heads, "number of heads; divides d_model", at_least(1));
    v("d_key", d_key, "width of the key input; 0 chooses d_model", at_least(0));
    v("d_value", d_value, "width of the value input; 0 chooses d_model", at_least(0));
    v("causal", causal, "whether a position sees only itself and what came before");
    v("bias", bias, "biases of the query, key and value projections");
    v("output_bias", output_bias, "bias of the output projection");
    v("attention_dropout", attention_dropout, "dropout of the attention weights", between(0, 1));
    v("residual_dropout", residual_dropout, "dropout of the output", between(0, 1));
    v("deviation", deviation, "standard deviation of the first query, key and value weights", at_least(0));
    v("output_deviation", output_deviation, "standard deviation of the first output weights", at_least(0));
  }
};

// Query, key and value inputs are given separately: the same tensor three times is self-attention;
// keys and values from another sequence are cross-attention.
class MultiHeadAttention final : public Module {
 public:
  MultiHeadAttention(Module* parent, std::string name, const MultiHeadAttentionConfig& c);

  // query (B,Tq,d_model), key (B,Tk,d_key), value (B,Tk,d_value) -> (B,Tq,d_model)
  Tensor operator()(const Tensor& query, const Tensor& key, const Tensor& value, Context& context,
                    const Tensor& mask = {});
  // The same with the weights (B,H,Tq,Tk).
  AttentionResult with_weights(const Tensor& query, const Tensor& key, const Tensor& value, Context& context,
                               const Tensor& mask = {});

 private:
  int64_t n_heads_;

 public:
  Linear query, key, value;
  ScaledDotProductAttention attention;
  Linear output;
  Dropout residual_dropout;
};

}  // namespace bonsai
