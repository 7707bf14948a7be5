#include "bonsai/layers/feed_forward/feed_forward.h"

namespace bonsai {

namespace {

struct Activation {
  std::string name, domain;
  Tensor (*op)(const Tensor&);
};

const std::vector<Activation>& all_activations() {
#define OP(name, functor, saves, domain) {#name, #domain, name},
  static const std::vector<Activation> all = {BONSAI_ELEMENTWISE(OP)};
#undef OP
  return all;
}

}  // namespace

OneOf activations() {
  OneOf names;
  for (const Activation& a : all_activations())
    if (a.domain == "real" || a.domain == "nonzero") names.words.push_back(a.name);
  return names;
}

Tensor (*activation_named(const std::string& name))(const Tensor&) {
  for (const Activation& a : all_activations())
    if (a.name == name) return a.op;
  fail("activation", "there is no activation '{}'; use {}", name, activations().text());
}

FeedForward::FeedForward(Module* parent, std::string name, const FeedForwardConfig& c)
    : Layer(parent, std::move(name)),
      activation_((check_config(path(), c), activation_named(c.activation))),
      up{this,
         "up",
         {.in = c.d_model,
          .out = c.d_hidden ? c.d_hidden : 4 * c.d_model,
          .bias = c.bias,
          .init_std = c.init_std}},
      down{this,
           "down",
           {.in = c.d_hidden ? c.d_hidden : 4 * c.d_model,
            .out = c.d_model,
            .bias = c.bias,
            .init_std = c.output_init_std}},
      dropout{this, "dropout", {.p = c.dropout}} {}

void register_feed_forward() {
  add_part<FeedForwardKind, FeedForward, Keys<FeedForwardConfig>>("feed_forward");
}

}  // namespace bonsai
