// Scaled dot-product attention.                                Vaswani et al. 2017, arXiv:1706.03762
//
//   weights = softmax(q k^T / sqrt(d_k) + mask)
//   output  = weights v
#pragma once

#include "bonsai/layers/dropout.h"

namespace bonsai {

constexpr const char* kWindow =
    "sliding window: number of most recent tokens that a token may attend to, itself included; 0 disables it";

constexpr const char* kLogitSoftcap =
    "c of the softcap c * tanh(s / c) applied to attention scores s; 0 disables it";

struct ScaledDotProductAttentionConfig {
  bool causal = false;
  bool cross = false;
  int64_t window = 0;
  double logit_softcap = 0;
  double dropout = 0;
  double scale = 0;
  template <class V>
  void visit(V& v) {
    v("causal", causal, "whether later positions are hidden");
    v("cross", cross, "whether keys, values and masks are those of a source");
    v("window", window, kWindow, at_least(0));
    v("logit_softcap", logit_softcap, kLogitSoftcap, between(0, 1e6));
    v("dropout", dropout, "dropout of the attention weights", between(0, 1));
    v("scale", scale, "factor of the scores; 0 chooses 1 / sqrt(d_k)", at_least(0));
  }
};

// Returns a sentence that says which keys contradict each other, or "". Each key is in its range already.
std::string misfit(const ScaledDotProductAttentionConfig& c);

// q (...,Tq,d_k), k (...,Tk,d_k), v (...,Tk,d_v), with up to two leading axes: batch and heads. k and v may
// have fewer heads. The bias is added to the scores and broadcasts to (...,Tq,Tk); -inf masks a key. Padding
// mask and segment ids are those of the context, or of context.source with `cross`. Without `causal`, the
// window also includes the next `window` - 1 tokens.
class ScaledDotProductAttention final : public Module {
 public:
  ScaledDotProductAttention(Module* parent, std::string name, const ScaledDotProductAttentionConfig& c = {});

  // Calls the fused op, which stores no (Tq,Tk) tensor.
  Tensor operator()(const Tensor& q, const Tensor& k, const Tensor& v, Context& context,
                    const Tensor& bias = {});
  // Calls composed_attention and also returns the attention weights before dropout.
  AttentionResult with_weights(const Tensor& q, const Tensor& k, const Tensor& v, Context& context,
                               const Tensor& bias = {});

  // Options of the op for heads of size `width` and `queries` queries.
  AttentionOptions options(int64_t width, int64_t queries, Context& context, const Tensor& bias) const;

 private:
  ScaledDotProductAttentionConfig config_;
  Dropout dropout_;
};

}  // namespace bonsai
