#include "bonsai/layers/model/transformer.h"

#include <cmath>

namespace bonsai {
namespace {

// Config of the decoder's or the encoder's stack.
StackConfig stack_config(const TransformerConfig& c, bool encoder) {
  const int64_t layers = encoder ? c.n_encoder_layers : c.n_layers;
  const bool cross = !encoder && c.n_encoder_layers > 0;
  const double additions = (cross ? 3 : 2) * static_cast<double>(std::max<int64_t>(1, layers));
  const double output = c.init_std / std::sqrt(additions);
  StackConfig s;
  s.block_size = c.block_size, s.n_layers = layers;
  s.position = c.position;
  s.dropout = c.dropout;
  s.block.cross = cross;
  s.block.attention = c.attention, s.block.mlp = c.mlp, s.block.norm = c.norm;
  s.block.context = {.d_model = c.d_model,
                     .d_hidden = c.d_hidden,
                     .bias = c.bias,
                     .dropout = c.dropout,
                     .norm_eps = c.norm_eps,
                     .n_heads = c.n_heads,
                     .causal = !encoder,
                     .init_std = c.init_std,
                     .output_init_std = output};
  return s;
}

}  // namespace

std::string misfit(const TransformerConfig& c) {
  if (c.n_encoder_layers > 0 && c.position == "alibi")
    return "position alibi needs causal attention; an encoder needs another position";
  const MultiHead* const found = c.attention.find<MultiHead>();
  if (!found) return "";
  MultiHead attention = *found;
  set_from(stack_config(c, false).block.context, attention);
  attention.position = c.position;
  return misfit(attention);
}

double parameter_count(const TransformerConfig& c) {
  TransformerConfig one = c;  // one block per stack; the count is multiplied
  one.n_layers = 1, one.n_encoder_layers = std::min<int64_t>(1, c.n_encoder_layers);
  Module root({.shapes_only = true});
  Transformer model{&root, "", one};
  double count = 0;
  for (const Parameter* p : model.parameters()) {
    const double copies = p->path.starts_with("block.0.")           ? static_cast<double>(c.n_layers)
                          : p->path.starts_with("encoder.block.0.") ? static_cast<double>(c.n_encoder_layers)
                                                                    : 1;
    count += copies * element_count(p->value.shape());
  }
  return count;
}

Transformer::Transformer(Module* parent, std::string name, const TransformerConfig& c)
    : Model(parent, std::move(name), {c.vocab_size, c.block_size}),
      config_(checked_config(path().empty() ? "transformer" : path(), c)),
      token{this, "token", {.entries = c.vocab_size, .width = c.d_model, .init_std = c.init_std}},
      stack(this, "", stack_config(c, false)),
      encoder(c.n_encoder_layers > 0
                  ? std::make_unique<Encoder>(this, "encoder", token, stack_config(c, true))
                  : nullptr) {
  if (!c.tie_embeddings)
    head_ = std::make_unique<Linear>(
        this, "head",
        LinearConfig{.in = c.d_model, .out = c.vocab_size, .bias = false, .init_std = c.init_std});
}

bool Transformer::cacheable() const {
  const Block& block = stack.blocks().front();  // all blocks have the same config
  return block.attention->cacheable() && block.mlp->position_wise();
}

std::vector<Layer*> Transformer::position_wise_layers() { return {stack.blocks().front().mlp.get()}; }

bool Transformer::sees_earlier() const {
  const MultiHead* const heads = config_.attention.find<MultiHead>();
  return !heads || heads->window != 1;
}

Tensor Transformer::encode(Context& context) {
  PathScope scope(path());
  check(encoder && context.source.ids, "transformer", "{}",
        encoder ? "its encoder needs context.source.ids" : "has no encoder; n_encoder_layers is 0");
  Context of_source = context;
  of_source.padding_mask = context.source.padding_mask, of_source.segment_ids = context.source.segment_ids;
  of_source.first_position = 0, of_source.cache = nullptr;
  const Tensor features = (*encoder)(context.source.ids, of_source);
  context.random = of_source.random;
  return features;
}

Tensor Transformer::forward(const Tensor& ids, Context& context) {
  if (!encoder || context.source.features) return head(trunk(embed(ids, context), context), context);
  Context with_source = context;
  with_source.source.features = encode(with_source);
  const Tensor logits = forward(ids, with_source);
  context.random = with_source.random;
  return logits;
}

Tensor Transformer::embed(const Tensor& ids, Context& context) { return stack.embed(token, ids, context); }

Tensor Transformer::trunk(const Tensor& x, Context& context) {
  check(encoder || !(context.source.ids || context.source.features), "transformer",
        "is given a source, but has no encoder; n_encoder_layers is 0");
  check(!context.cache || stack.blocks().front().attention->cacheable(), "transformer",
        "model.attention {} does not continue from a key/value cache; pass all tokens, without a cache",
        config_.attention.name());
  check(!context.cache || cacheable(), "transformer",
        "model.mlp {} is not position-wise, so a key/value cache lacks its inputs at earlier tokens; pass "
        "all tokens, without a cache",
        config_.mlp.name());
  return stack.trunk(x, context);
}

Tensor Transformer::last_logits(const Tensor& ids, Context& context) {
  const Tensor features = trunk(embed(ids, context), context);
  const int64_t batch = features.size(0), time = features.size(1);
  const Tensor last = reshape(slice(features, 1, time - 1, time), {batch, features.size(2)});
  return head(last, context);
}

Tensor Transformer::head(const Tensor& features, Context& context) {
  PathScope scope(path());
  return head_ ? (*head_)(features, context) : linear(features, token.weight->value);
}

void register_transformer() { add_part<ModelKind, Transformer, TransformerKeys>("transformer"); }

}  // namespace bonsai
