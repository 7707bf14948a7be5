#include "layers/decoder.h"

#include <cmath>

namespace bonsai {
namespace {

DecoderConfig checked(const std::string& where, const DecoderConfig& c) {
  const std::string place = where.empty() ? "decoder" : where;
  check_config(place, c);
  const std::string why = misfit(c);
  check(why.empty(), place, "{}", why);
  return c;
}

bool is_added(const std::string& position) { return position == "learned" || position == "sinusoidal"; }

BlockConfig block_config(const DecoderConfig& c) {
  const double output = c.deviation / std::sqrt(2.0 * static_cast<double>(c.n_layers));
  return {.attention = {.d_model = c.d_model,
                        .n_heads = c.n_heads,
                        .n_kv_heads = c.n_kv_heads,
                        .causal = true,
                        .window = c.window,
                        .position = is_added(c.position) ? "none" : c.position,
                        .rope_theta = c.rope_theta,
                        .qk_norm = c.qk_norm,
                        .norm_eps = c.norm_eps,
                        .soft_cap = c.soft_cap,
                        .bias = c.bias,
                        .output_bias = c.bias,
                        .attention_dropout = c.dropout,
                        .residual_dropout = c.dropout,
                        .deviation = c.deviation,
                        .output_deviation = output},
          .mlp = {.d_model = c.d_model,
                  .d_hidden = c.d_hidden,
                  .activation = c.activation,
                  .bias = c.bias,
                  .dropout = c.dropout,
                  .deviation = c.deviation,
                  .output_deviation = output},
          .other_mlp =
              c.mlp_keys && c.mlp_keys->name() == c.mlp ? c.mlp_keys : feed_forward_registry().keys(c.mlp),
          .norm = c.norm,
          .norm_eps = c.norm_eps,
          .norm_bias = c.bias};
}

}  // namespace

std::string misfit(const DecoderConfig& c) { return misfit(block_config(c).attention); }

double parameter_count(const DecoderConfig& c) {
  const auto d = static_cast<double>(c.d_model), vocabulary = static_cast<double>(c.vocab_size);
  const double hidden = c.d_hidden ? static_cast<double>(c.d_hidden) : 4 * d, bias = c.bias ? 1 : 0;
  const double norm = d * (1 + (c.norm == "layer_norm" ? bias : 0));
  const double width = d / static_cast<double>(c.n_heads),
               kv = width * static_cast<double>(c.n_kv_heads ? c.n_kv_heads : c.n_heads);
  const double attention = 2 * d * (d + bias) + 2 * kv * d + 2 * kv * bias + (c.qk_norm ? 2 * width : 0);
  const double block = attention + 2 * d * hidden + bias * (hidden + d) + 2 * norm;
  return vocabulary * d * (c.tie_embeddings ? 1 : 2) + static_cast<double>(c.n_layers) * block + norm +
         (c.position == "learned" ? static_cast<double>(c.block_size) * d : 0);
}

Decoder::Decoder(Module* parent, std::string name, const DecoderConfig& c)
    : Layer(parent, std::move(name)),
      config_(checked(path(), c)),
      token{this, "token", {.entries = c.vocab_size, .width = c.d_model, .deviation = c.deviation}},
      position_(make_positions(this, "position", is_added(c.position) ? c.position : "none",
                               {.block_size = c.block_size, .width = c.d_model, .deviation = c.deviation})),
      dropout_{this, "dropout", {.p = c.dropout}} {
  for (int64_t i = 0; i < c.n_layers; ++i)
    blocks_.emplace_back(this, "block." + std::to_string(i), block_config(c));
  norm_ = make_norm(this, "norm", c.norm, c.d_model, c.norm_eps, c.bias);
  if (!c.tie_embeddings)
    head_ = std::make_unique<Linear>(
        this, "head",
        LinearConfig{.in = c.d_model, .out = c.vocab_size, .bias = false, .deviation = c.deviation});
}

Tensor Decoder::embed(const Tensor& ids, Context& context) {
  PathScope scope(path());
  check(ids && ids.rank() == 2, "decoder", "needs ids (batch,time), got {}", ids);
  check(context.first_position + ids.size(1) <= config_.block_size, "decoder",
        "{} tokens from position {} exceed block_size {}", ids.size(1), context.first_position,
        config_.block_size);
  const Tensor x = token(ids, context);
  return dropout_(position_ ? (*position_)(x, context) : x, context);
}

Tensor Decoder::trunk(const Tensor& x, Context& context) {
  PathScope scope(path());
  Tensor h = x;
  for (Block& block : blocks_) h = block(h, context);
  return (*norm_)(h, context);
}

Tensor Decoder::last_logits(const Tensor& ids, Context& context) {
  const Tensor features = trunk(embed(ids, context), context);
  const int64_t batch = features.size(0), time = features.size(1);
  const Tensor last = reshape(slice(features, 1, time - 1, time), {batch, features.size(2)});
  return head(last, context);
}

Tensor Decoder::head(const Tensor& features, Context& context) {
  PathScope scope(path());
  return head_ ? (*head_)(features, context) : linear(features, token.weight->value);
}

}  // namespace bonsai
