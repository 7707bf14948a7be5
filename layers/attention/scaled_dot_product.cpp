#include "bonsai/layers/attention/scaled_dot_product.h"

#include <cmath>

#include "bonsai/framework/ops/axes.h"

namespace bonsai {
namespace {

// Adds leading axes of size 1 up to (batch, heads, time, width).
Tensor four_axes(const char* operand, const Tensor& x) {
  check(x && x.rank() >= 2 && x.rank() <= 4, "attention",
        "{} must be (time,width) with up to two axes before, got {}", operand, x);
  if (x.rank() == 4) return x;
  return reshape(x, {1, x.rank() == 3 ? x.size(0) : 1, x.size(-2), x.size(-1)});
}

// Reshapes an output or attention weights to the query's leading axes.
Tensor like_query(const Tensor& y, const Tensor& q) {
  Shape shape = q.shape();
  shape[-1] = y.size(-1);
  return reshape(y, shape);
}

}  // namespace

std::string misfit(const ScaledDotProductAttentionConfig& c) {
  if (c.cross && (c.causal || c.window > 0))
    return fmt::format("{} compares positions, but a source has its own; cross-attention takes none",
                       c.causal ? "causal" : "window");
  return "";
}

ScaledDotProductAttention::ScaledDotProductAttention(Module* parent, std::string name,
                                                     const ScaledDotProductAttentionConfig& c)
    : Module(parent, std::move(name)),
      config_(checked_config(path(), c)),
      dropout_{this, "dropout", {.p = c.dropout}} {}

AttentionOptions ScaledDotProductAttention::options(int64_t width, int64_t queries, Context& context,
                                                    const Tensor& bias) const {
  AttentionOptions o;
  o.mask.causal = config_.causal, o.mask.window = config_.window;
  o.mask.padding_mask = config_.cross ? context.source.padding_mask : context.padding_mask;
  o.mask.key_segment_ids = config_.cross ? context.source.segment_ids : context.segment_ids;
  if (const Tensor& all = context.segment_ids) {  // the queries are the last tokens of `all`
    check_axes("attention", "documents", all, "(batch,time)");
    check(all.size(1) >= queries, "attention", "{} names fewer documents than there are queries, {}", all,
          queries);
    o.mask.query_segment_ids = slice(all, 1, all.size(1) - queries, all.size(1));
  }
  const double usual = 1 / std::sqrt(static_cast<double>(std::max<int64_t>(1, width)));
  o.scale = (config_.scale > 0 ? config_.scale : usual) * context.attention_scale;
  o.logit_softcap = config_.logit_softcap, o.bias = bias;
  if (context.training && config_.dropout > 0)
    o.dropout = config_.dropout, o.key = context.random.draw(dropout_.path());
  return o;
}

Tensor ScaledDotProductAttention::operator()(const Tensor& q, const Tensor& k, const Tensor& v,
                                             Context& context, const Tensor& bias) {
  PathScope scope(path());
  const Tensor q4 = four_axes("q", q);
  return like_query(scaled_dot_product_attention(q4, four_axes("k", k), four_axes("v", v),
                                                 options(q4.size(-1), q4.size(-2), context, bias)),
                    q);
}

AttentionResult ScaledDotProductAttention::with_weights(const Tensor& q, const Tensor& k, const Tensor& v,
                                                        Context& context, const Tensor& bias) {
  PathScope scope(path());
  const Tensor q4 = four_axes("q", q);
  const AttentionResult r =
      composed_attention(q4, four_axes("k", k), four_axes("v", v),
                                               options(q4.size(-1), q4.size(-2), context, bias));
  return {like_query(r.output, q), like_query(r.weights, q)};
}

}  // namespace bonsai
