// What a block is made of, by name: norms and feed-forward layers, as framework/config/registry.h describes parts.
//
// A feed-forward layer of your own is one file. Its config has visit() for keys of its own, `int64_t d_model`, and any
// other field of BlockContext that it needs, which the model sets. Its class is a Layer (...,C) -> (...,C) made from
// (parent, name, config). If its output at a position depends on other positions, it overrides Layer::position_wise; text
// is then generated without the key/value cache. The audit refuses a layer that does so undeclared.
//
//   void register_swiglu() { add_part<FeedForwardKind, SwiGLU, SwiGLUConfig>("swiglu"); }
//
// CMake calls register_<file> for every file of layers/feed_forward and layers/norm and of -DBONSAI_FEED_FORWARD=FILES.
#pragma once

#include "bonsai/framework/config/registry.h"
#include "bonsai/layers/module.h"

namespace bonsai {

void register_layer_parts();  // written by CMake

// What a block knows and its parts may need. The model's keys give it.
struct BlockContext {
  int64_t d_model = 1;
  int64_t d_hidden = 0;  // 0: the layer chooses
  bool bias = true;
  double dropout = 0;
  double norm_eps = 1e-5;
  double init_std = kInitStd;
  double output_init_std = kInitStd;  // of projections that end a residual branch
};

// Sets the fields that the config shares with the context.
template <class Config>
void set_from(const BlockContext& block, Config& c) {
  if constexpr (requires { c.d_model = block.d_model; }) c.d_model = block.d_model;
  if constexpr (requires { c.d_hidden = block.d_hidden; }) c.d_hidden = block.d_hidden;
  if constexpr (requires { c.bias = block.bias; }) c.bias = block.bias;
  if constexpr (requires { c.dropout = block.dropout; }) c.dropout = block.dropout;
  if constexpr (requires { c.norm_eps = block.norm_eps; }) c.norm_eps = block.norm_eps;
  if constexpr (requires { c.init_std = block.init_std; }) c.init_std = block.init_std;
  if constexpr (requires { c.output_init_std = block.output_init_std; }) c.output_init_std = block.output_init_std;
}

// Parts that are layers made from the block's context.
struct LayerKind {
  using Make = std::unique_ptr<Layer>(Module* parent, std::string name, const BlockContext& block);
  static void register_all() { register_layer_parts(); }

  template <class Part, class Config>
  static std::unique_ptr<Layer> make(Config c, Module* parent, std::string name, const BlockContext& block) {
    set_from(block, c);
    check_config(name, c);
    return std::make_unique<Part>(parent, std::move(name), c);
  }
};

struct FeedForwardKind : LayerKind {
  static constexpr const char *name = "feed-forward layer", *standard = "feed_forward";
};

struct NormKind {
  static constexpr const char *name = "norm", *standard = "layer_norm";
  using Make = LayerKind::Make;
  static void register_all() { register_layer_parts(); }

  template <class Part, class Config>
  static std::unique_ptr<Layer> make(Config c, Module* parent, std::string name, const BlockContext& block) {
    c.width = block.d_model;
    if constexpr (requires { c.eps = block.norm_eps; }) c.eps = block.norm_eps;
    if constexpr (requires { c.bias = block.bias; }) c.bias = block.bias;
    return std::make_unique<Part>(parent, std::move(name), c);
  }
};

}  // namespace bonsai
