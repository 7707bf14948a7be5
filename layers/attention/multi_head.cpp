#include "bonsai/layers/attention/multi_head.h"

#include <tuple>

#include "bonsai/framework/ops/axes.h"
#include "bonsai/layers/cache.h"

namespace bonsai {
namespace {

int64_t kv_heads_of(const MultiHeadAttentionConfig& c) { return c.n_kv_heads ? c.n_kv_heads : c.n_heads; }

int64_t kv_width(const MultiHeadAttentionConfig& c) { return c.d_model / c.n_heads * kv_heads_of(c); }

Part part_of(const MultiHeadAttentionConfig& c, int axis) { return {axis, c.rank, c.model_parallel_size}; }

ScaledDotProductAttentionConfig scores_of(const MultiHeadAttentionConfig& c) {
  return {.causal = c.causal,
          .cross = c.cross,
          .window = c.window,
          .logit_softcap = c.logit_softcap,
          .dropout = c.attention_dropout,
          .scale = c.scale};
}

}  // namespace

std::string misfit(const MultiHeadAttentionConfig& c) {
  if (c.d_model % c.n_heads != 0)
    return fmt::format("d_model {} is not divisible by n_heads {}", c.d_model, c.n_heads);
  if (c.n_heads % kv_heads_of(c) != 0)
    return fmt::format("n_heads {} is not divisible by n_kv_heads {}", c.n_heads, c.n_kv_heads);
  if ((c.position == "rope" || c.position == "rope_interleaved") && c.d_model / c.n_heads % 2 != 0)
    return fmt::format("position {} needs heads of an even width, got {}", c.position.name(),
                       c.d_model / c.n_heads);
  if (c.cross && (c.shared_position || !(c.position == "none")))
    return fmt::format("position is {}, but a source has positions of its own; cross-attention takes none",
                       c.position.name());
  if (const std::string why = misfit(scores_of(c)); !why.empty()) return why;
  if (kv_heads_of(c) % c.model_parallel_size != 0)  // n_heads is a multiple of kv_heads_of(c)
    return fmt::format("{} heads with {} key/value heads are not divisible by model_parallel_size {}",
                       c.n_heads, kv_heads_of(c), c.model_parallel_size);
  if (c.rank >= c.model_parallel_size)
    return fmt::format("rank {} is not below model_parallel_size {}", c.rank, c.model_parallel_size);
  if (c.model_parallel_size > 1 && c.residual_dropout > 0)
    return fmt::format("residual_dropout {} belongs after the sum of the ranks' outputs; set it to 0",
                       c.residual_dropout);
  return "";
}

MultiHeadAttention::MultiHeadAttention(Module* parent, std::string name, const MultiHeadAttentionConfig& c)
    : AttentionLayer(parent, std::move(name)),
      config_(checked_config(path(), c)),
      query{this,
            "query",
            {.in = c.d_model,
             .out = c.d_model,
             .bias = c.bias,
             .init_std = c.init_std,
             .part = part_of(c, 0)}},
      key{this,
          "key",
          {.in = c.d_key ? c.d_key : c.d_model,
           .out = kv_width(c),
           .bias = c.bias,
           .init_std = c.init_std,
           .part = part_of(c, 0)}},
      value{this,
            "value",
            {.in = c.d_value ? c.d_value : c.d_model,
             .out = kv_width(c),
             .bias = c.bias,
             .init_std = c.init_std,
             .part = part_of(c, 0)}},
      attention{this, "attention", scores_of(c)},
      output{this,
             "output",
             {.in = c.d_model,
              .out = c.d_model,
              .bias = c.output_bias,
              .init_std = c.output_init_std,
              .part = part_of(c, 1)}},
      residual_dropout{this, "residual_dropout", {.p = c.residual_dropout}} {
  const int64_t width = c.d_model / c.n_heads;
  if (c.qk_norm) {
    query_norm_ =
        std::make_unique<RMSNorm>(this, "query_norm", RMSNormConfig{.width = width, .eps = c.norm_eps});
    key_norm_ = std::make_unique<RMSNorm>(this, "key_norm", RMSNormConfig{.width = width, .eps = c.norm_eps});
  }
  if (!c.shared_position) {
    own_position_ = c.position.make(this, "", PositionContext{.width = c.d_model});
    check(!own_position_->is_added(), path(), "position {} is added to token vectors, not to attention",
          c.position.name());
  }
  position_ = c.shared_position ? c.shared_position : own_position_.get();
}

std::string MultiHeadAttention::kept_as() const {
  return config_.model_parallel_size > 1 ? fmt::format("{}#{}", path(), config_.rank) : path();
}

Tensor MultiHeadAttention::placed(const Tensor& x, int64_t n_heads, int64_t first, RMSNorm* norm,
                                  Context& context) {
  Tensor y = x;
  if (norm)
    y = reshape((*norm)(reshape(x, {x.size(0), x.size(1), n_heads, x.size(2) / n_heads}), context),
                x.shape());
  return position_->turned(y, n_heads, first);
}

MultiHeadAttention::Projected MultiHeadAttention::project(const Tensor& q, const Tensor& k, const Tensor& v,
                                                          Context& context, const Tensor& bias) {
  for (const auto& [operand, x] : {std::pair{"the query", &q}, {"the key", &k}, {"the value", &v}})
    check_axes("attention", operand, *x, "(batch,time,channels)");
  const int64_t heads = config_.n_heads / config_.model_parallel_size,
                kv_heads = kv_heads_of(config_) / config_.model_parallel_size;
  const int64_t first = context.first_position;
  const std::string name = context.cache ? kept_as() : "";
  Projected p;
  p.q = query(q, context);
  p.q = placed(p.q, heads, first + k.size(1) - p.q.size(1), query_norm_.get(), context);
  const auto keys_and_values = [&] {
    const Tensor keys = placed(key(k, context), kv_heads, first, key_norm_.get(), context);
    return std::pair{keys, value(v, context)};
  };
  if (context.cache && config_.cross)
    std::tie(p.k, p.v) = context.cache->source(name, keys_and_values);
  else
    std::tie(p.k, p.v) = keys_and_values();
  if (context.cache && !config_.cross) {
    const int64_t cached = context.cache->length(name);
    check(first == cached, path(), "first_position is {}, but {} tokens are cached", first, cached);
    std::tie(p.k, p.v) = context.cache->append(name, p.k, p.v);
  }
  p.options = attention.options(config_.d_model / config_.n_heads, p.q.size(1), context, bias);
  p.options.n_heads = heads, p.options.n_kv_heads = kv_heads;
  p.options.first_head = config_.rank * heads, p.options.all_heads = config_.n_heads;
  position_->set_scores(p.options);
  return p;
}

Tensor MultiHeadAttention::operator()(const Tensor& q, const Tensor& k, const Tensor& v, Context& context,
                                      const Tensor& bias) {
  PathScope scope(path());
  if (context.watcher)
    context.watcher->called(*this, {q, k, v, bias}, context, [this](const auto& in, Context& c) {
      return (*this)(in[0], in[1], in[2], c, in[3]);
    });
  if (context.weights) {
    const AttentionResult r = with_weights(q, k, v, context, bias);
    (*context.weights)[kept_as()] = r.weights;
    return r.output;
  }
  const Projected p = project(q, k, v, context, bias);
  return residual_dropout(output(scaled_dot_product_attention(p.q, p.k, p.v, p.options), context), context);
}

AttentionResult MultiHeadAttention::with_weights(const Tensor& q, const Tensor& k, const Tensor& v,
                                                 Context& context, const Tensor& bias) {
  PathScope scope(path());
  const Projected p = project(q, k, v, context, bias);
  const AttentionResult heads = composed_attention(p.q, p.k, p.v, p.options);
  return {residual_dropout(output(heads.output, context), context), heads.weights};
}

void register_multi_head() { add_part<AttentionKind, MultiHeadAttention, MultiHead>("multi_head"); }

}  // namespace bonsai
