// What a block is made of, by name: attention, norms and feed-forward layers, as framework/config/registry.h describes parts.
//
// A feed-forward layer of your own is one file. Its config has visit() for keys of its own, `int64_t d_model`, and any
// other field of BlockContext that it needs, which the model sets. Its class is a Layer (...,C) -> (...,C) made from
// (parent, name, config). If its output at a position depends on other positions, it overrides Layer::position_wise; text
// is then generated without the key/value cache. The audit refuses a layer that does so undeclared.
//
//   void register_swiglu() { add_part<FeedForwardKind, SwiGLU, SwiGLUConfig>("swiglu"); }
//
// CMake calls register_<file> for the files of layers/attention, feed_forward and norm and of -DBONSAI_PARTS=FILES.
#pragma once

#include "bonsai/framework/config/registry.h"
#include "bonsai/framework/ops/ops.h"
#include "bonsai/layers/module.h"

namespace bonsai {

void register_layer_parts();  // written by CMake

// How positions are known. A class overrides what it does: it adds to token vectors (forward), turns queries and keys, or
// changes the scores.
class Position : public Layer {
 public:
  using Layer::Layer;
  // Whether forward adds something. If not, attention must ask.
  virtual bool is_added() const { return false; }
  // Queries or keys (B,T,n_heads*D), heads side by side, whose first row stands at `first`.
  virtual Tensor turned(const Tensor& x, int64_t /*n_heads*/, int64_t /*first*/) const { return x; }
  // Sets what the scores need: options.alibi or options.bias. The number of heads is set.
  virtual void set_scores(AttentionOptions&) {}

 protected:
  Tensor forward(const Tensor& x, Context&) override { return x; }  // (B,T,C) -> (B,T,C)
};

// What a position part is made from.
struct PositionContext {
  int64_t block_size = 1;
  int64_t width = 1;  // of token vectors
  double init_std = kInitStd;
};

struct PositionKind {
  static constexpr const char *name = "position", *standard = "learned";
  using Make = std::unique_ptr<Position>(Module* parent, std::string name, const PositionContext& context);
  static void register_all() { register_layer_parts(); }

  template <class Part, class Config>
  static std::unique_ptr<Position> make(Config c, Module* parent, std::string name, const PositionContext& context) {
    if constexpr (requires { c.block_size = context.block_size; }) c.block_size = context.block_size;
    if constexpr (requires { c.width = context.width; }) c.width = context.width;
    if constexpr (requires { c.init_std = context.init_std; }) c.init_std = context.init_std;
    return std::make_unique<Part>(parent, std::move(name), c);
  }
};

// What a block knows and its parts may need. The model's keys give it.
struct BlockContext {
  int64_t d_model = 1;
  int64_t d_hidden = 0;  // 0: the layer chooses
  bool bias = true;
  double dropout = 0;
  double norm_eps = 1e-5;
  int64_t n_heads = 1;
  bool causal = false;            // whether a position sees only itself and what came before
  bool cross = false;             // whether keys and values are those of the context's source
  Position* position = nullptr;   // of the stack; null: none
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
  if constexpr (requires { c.n_heads = block.n_heads; }) c.n_heads = block.n_heads;
  if constexpr (requires { c.causal = block.causal; }) c.causal = block.causal;
  if constexpr (requires { c.cross = block.cross; }) c.cross = block.cross;
  if constexpr (requires { c.shared_position = block.position; }) c.shared_position = block.position;
  if constexpr (requires { c.output_bias = block.bias; }) c.output_bias = block.bias;
  if constexpr (requires { c.attention_dropout = block.dropout; }) c.attention_dropout = block.dropout;
  if constexpr (requires { c.residual_dropout = block.dropout; }) c.residual_dropout = block.dropout;
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

// What a block attends with. The same tensor three times is self-attention.
class AttentionLayer : public Module {
 public:
  using Module::Module;
  // query (B,Tq,C), key (B,Tk,C), value (B,Tk,C) -> (B,Tq,C). A bias is added to the scores.
  virtual Tensor operator()(const Tensor& query, const Tensor& key, const Tensor& value, Context& context,
                            const Tensor& bias = {}) = 0;
  // Whether a pass over later tokens alone gives the same outputs with the context's cache.
  virtual bool cacheable() const { return true; }
};

struct AttentionKind {
  static constexpr const char *name = "attention", *standard = "multi_head";
  using Make = std::unique_ptr<AttentionLayer>(Module* parent, std::string name, const BlockContext& block);
  static void register_all() { register_layer_parts(); }

  template <class Part, class Config>
  static std::unique_ptr<AttentionLayer> make(Config c, Module* parent, std::string name, const BlockContext& block) {
    set_from(block, c);
    if (block.cross)  // a source has positions of its own
      if constexpr (requires { c.window = 0; }) c.window = 0;
    return std::make_unique<Part>(parent, std::move(name), c);
  }
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
