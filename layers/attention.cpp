#include "layers/attention.h"

#include <cmath>

#include "framework/autograd/record.h"

namespace bonsai {
namespace {

// The composed path would stretch leading axes that differ; the fused op refuses them, and so do both.
void check_leading_axes(const Tensor& q, const Tensor& k, const Tensor& v) {
  const auto leading = [](const Tensor& x) {
    check(x && x.rank() >= 2, "attention", "needs (time,width) with up to two axes before, got {}", x);
    return Shape(std::span(x.shape().dim, static_cast<size_t>(x.rank() - 2)));
  };
  check(leading(q) == leading(k) && leading(q) == leading(v), "attention", "sizes do not fit: q {}, k {}, v {}", q, k, v);
}

// With leading axes of size 1, to (batch, heads, time, width).
Tensor four_axes(const Tensor& x) {
  check(x.rank() >= 2 && x.rank() <= 4, "attention", "needs (time,width) with up to two axes before, got {}", x);
  if (x.rank() == 4) return x;
  return reshape(x, {1, x.rank() == 3 ? x.size(0) : 1, x.size(-2), x.size(-1)});
}

Tensor like_query(const Tensor& y, const Tensor& q) {
  Shape shape = q.shape();
  shape[-1] = y.size(-1);
  return reshape(y, shape);
}

Tensor split_heads(const Tensor& x, int64_t n_heads) {  // (B,T,H*D) -> (B,H,T,D)
  check(x.rank() == 3 && x.size(2) % n_heads == 0, "attention", "needs (batch,time,{} heads * width), got {}", n_heads, x);
  return permute(reshape(x, {x.size(0), x.size(1), n_heads, x.size(2) / n_heads}), {0, 2, 1, 3});
}

// What is added to the scores: the mask that was given, and -inf for keys that nobody attends to.
Tensor with_padding(const Tensor& mask, const Tensor& key, const Context& context) {
  if (!context.attend) return mask;
  check(context.attend.shape() == Shape{key.size(0), key.size(1)}, "attention", "{} does not say which keys of {} to attend to",
        context.attend, key);
  const Shape shape{key.size(0), 1, 1, key.size(1)};
  const Tensor hidden = masked_fill(zeros(shape, key.dtype(), key.device()), context.attend.alias(shape), -INFINITY);
  return mask ? add(mask, hidden) : hidden;
}

Tensor merge_heads(const Tensor& x) {  // (B,H,T,D) -> (B,T,H*D)
  return reshape(permute(x, {0, 2, 1, 3}), {x.size(0), x.size(2), x.size(1) * x.size(3)});
}

}  // namespace

ScaledDotProductAttention::ScaledDotProductAttention(Module* parent, std::string name,
                                                     const ScaledDotProductAttentionConfig& c)
    : Module(parent, std::move(name)), config_(c), dropout_{this, "dropout", {.p = c.dropout}} {
  check_config(path(), c);
}

AttentionResult ScaledDotProductAttention::with_weights(const Tensor& q, const Tensor& k, const Tensor& v,
                                                        Context& context, const Tensor& mask) {
  PathScope scope(path());
  check_leading_axes(q, k, v);
  const double width = static_cast<double>(std::max<int64_t>(1, q.size(-1)));
  const double factor = config_.scale > 0 ? config_.scale : 1 / std::sqrt(width);
  Tensor scores = scale(matmul(q, k, false, true), factor * context.attention_scale);
  if (mask) scores = add(scores, mask);
  if (config_.causal) scores = causal_mask_(scores, context);
  const Tensor weights = softmax(scores);
  return {matmul(dropout_(weights, context), v), weights};
}

Tensor ScaledDotProductAttention::fused(const Tensor& q, const Tensor& k, const Tensor& v, int64_t n_heads,
                                        Context& context, const Tensor& mask) {
  const bool drops = context.training && config_.dropout > 0;
  const int64_t width = std::max<int64_t>(1, n_heads ? q.size(-1) / n_heads : q.size(-1));
  const double factor = config_.scale > 0 ? config_.scale : 1 / std::sqrt(static_cast<double>(width));
  return scaled_dot_product_attention(q, k, v,
                                      {.n_heads = n_heads,
                                       .causal = config_.causal,
                                       .scale = factor * context.attention_scale,
                                       .mask = mask,
                                       .dropout = drops ? config_.dropout : 0,
                                       .key = drops ? context.random.draw(dropout_.path()) : RandomKey{}});
}

Tensor ScaledDotProductAttention::operator()(const Tensor& q, const Tensor& k, const Tensor& v, Context& context,
                                             const Tensor& mask) {
  if (mask && recording({mask})) return with_weights(q, k, v, context, mask).output;
  PathScope scope(path());
  return like_query(fused(four_axes(q), four_axes(k), four_axes(v), 0, context, mask), q);
}

Tensor ScaledDotProductAttention::heads_in_columns(const Tensor& q, const Tensor& k, const Tensor& v, int64_t n_heads,
                                                   Context& context, const Tensor& mask) {
  PathScope scope(path());
  if (!mask || !recording({mask})) return fused(q, k, v, n_heads, context, mask);
  return merge_heads(
      with_weights(split_heads(q, n_heads), split_heads(k, n_heads), split_heads(v, n_heads), context, mask).output);
}

MultiHeadAttention::MultiHeadAttention(Module* parent, std::string name, const MultiHeadAttentionConfig& c)
    : Module(parent, std::move(name)),
      n_heads_((check_config(path(), c), c.n_heads)),
      query{this, "query", {.in = c.d_model, .out = c.d_model, .bias = c.bias, .deviation = c.deviation}},
      key{this, "key", {.in = c.d_key ? c.d_key : c.d_model, .out = c.d_model, .bias = c.bias, .deviation = c.deviation}},
      value{this, "value", {.in = c.d_value ? c.d_value : c.d_model, .out = c.d_model, .bias = c.bias, .deviation = c.deviation}},
      attention{this, "attention", {.causal = c.causal, .dropout = c.attention_dropout}},
      output{this, "output", {.in = c.d_model, .out = c.d_model, .bias = c.output_bias, .deviation = c.output_deviation}},
      residual_dropout{this, "residual_dropout", {.p = c.residual_dropout}} {
  check(c.d_model % c.n_heads == 0, path(), "d_model {} is not divisible by n_heads {}", c.d_model, c.n_heads);
}

Tensor MultiHeadAttention::operator()(const Tensor& q, const Tensor& k, const Tensor& v, Context& context,
                                      const Tensor& mask) {
  PathScope scope(path());
  const Tensor mixed = attention.heads_in_columns(query(q, context), key(k, context), value(v, context), n_heads_, context,
                                                  with_padding(mask, k, context));
  return residual_dropout(output(mixed, context), context);
}

AttentionResult MultiHeadAttention::with_weights(const Tensor& q, const Tensor& k, const Tensor& v, Context& context,
                                                 const Tensor& mask) {
  PathScope scope(path());
  const AttentionResult heads =
      attention.with_weights(split_heads(query(q, context), n_heads_), split_heads(key(k, context), n_heads_),
                             split_heads(value(v, context), n_heads_), context, with_padding(mask, k, context));
  return {residual_dropout(output(merge_heads(heads.output), context), context), heads.weights};
}

}  // namespace bonsai
