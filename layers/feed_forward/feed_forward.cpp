#include "bonsai/layers/feed_forward/feed_forward.h"

namespace bonsai {

Tensor (*activation_named(const std::string& name))(const Tensor&) {
  if (name == "gelu") return gelu;
  if (name == "gelu_tanh") return gelu_tanh;
  if (name == "relu") return relu;
  if (name == "silu") return silu;
  if (name == "sigmoid") return sigmoid;
  if (name == "tanh") return tanh;
  fail("activation", "there is no activation '{}'", name);
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

void register_feed_forward() { add_part<FeedForwardKind, FeedForward, Keys<FeedForwardConfig>>("feed_forward"); }

}  // namespace bonsai
