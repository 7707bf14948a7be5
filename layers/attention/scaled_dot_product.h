// Scaled dot-product attention.                                Vaswani et al. 2017, arXiv:1706.03762
//
//   weights = softmax(q k^T / sqrt(d_k) + mask)       each query asks every key how well they match
//   output  = weights v                               and takes that mixture of the values
#pragma once

#include "bonsai/layers/dropout.h"

namespace bonsai {

constexpr const char* kWindow =
    "keys nearer than this are seen: where causal, so many positions, one's own included; 0 for all";

constexpr const char* kLogitSoftcap = "scores become c * tanh(scores / c) for this c; 0 leaves them";

struct ScaledDotProductAttentionConfig {
  bool causal = false;
  bool cross = false;
  int64_t window = 0;
  double logit_softcap = 0;
  double dropout = 0;
  double scale = 0;
  template <class V>
  void visit(V& v) {
    v("causal", causal, "whether a position sees only itself and what came before");
    v("cross", cross, "whether keys and values are a source's, with its padding and documents");
    v("window", window, kWindow, at_least(0));
    v("logit_softcap", logit_softcap, kLogitSoftcap, between(0, 1e6));
    v("dropout", dropout, "dropout of the attention weights", between(0, 1));
    v("scale", scale, "factor of the scores; 0 chooses 1 / sqrt(d_k)", at_least(0));
  }
};

// What does not fit together in a config whose values are all in range, as a sentence; empty where all does.
std::string misfit(const ScaledDotProductAttentionConfig& c);

// q (...,Tq,d_k), k (...,Tk,d_k), v (...,Tk,d_v), with up to two leading axes: batch and heads; k and v may have
// fewer heads. A bias is added to the scores (-inf: may not attend) and broadcasts to (...,Tq,Tk). The context says
// which keys are padding and which documents are packed into a row; with `cross`, its source does.
class ScaledDotProductAttention final : public Module {
 public:
  ScaledDotProductAttention(Module* parent, std::string name, const ScaledDotProductAttentionConfig& c = {});

  // One op that keeps no (Tq,Tk) tensor.
  Tensor operator()(const Tensor& q, const Tensor& k, const Tensor& v, Context& context,
                    const Tensor& bias = {});
  // The composed path, step by step, which also returns the weights (before dropout).
  AttentionResult with_weights(const Tensor& q, const Tensor& k, const Tensor& v, Context& context,
                               const Tensor& bias = {});

  // What the op is told, by the config, the context and the bias, for heads of this width and so many queries.
  AttentionOptions options(int64_t width, int64_t queries, Context& context, const Tensor& bias) const;

 private:
  ScaledDotProductAttentionConfig config_;
  Dropout dropout_;
};

}  // namespace bonsai
