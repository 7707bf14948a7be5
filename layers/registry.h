// Feed-forward layers that a config can name, beside the standard one: `model.mlp: swiglu`, with the layer's
// own keys below `model.swiglu`.
//
// One file defines one: a config struct with `int64_t d_model`, which the model sets, as it does d_hidden, bias, dropout,
// deviation and output_init_std where the struct has them, and visit() for keys of its own; a Layer (...,C) -> (...,C)
// made from (parent, name, config); and what registers it:
//
//   void register_swiglu(FeedForwardRegistry& layers) { layers.add<SwiGLU, SwiGLUConfig>("swiglu"); }
//
// A layer whose output at a position depends on other positions declares it in its class:
//
//   static constexpr bool position_wise = false;
//
// Text is then generated without the key/value cache. The audit refuses a layer that does so undeclared.
//
// CMake calls register_<file> for every file of layers/feed_forward and of -DBONSAI_FEED_FORWARD=FILES.
#pragma once

#include <map>
#include <memory>

#include "bonsai/framework/config/visit.h"
#include "bonsai/layers/mlp.h"

namespace bonsai {

// The config of a layer that is still to be made.
class FeedForwardKeys {
 public:
  explicit FeedForwardKeys(std::string name) : name_(std::move(name)) {}
  virtual ~FeedForwardKeys() = default;
  const std::string& name() const { return name_; }
  virtual void visit(Visitor& v) = 0;
  virtual bool position_wise() const = 0;
  virtual std::unique_ptr<Layer> make(Module* parent, std::string name,
                                      const FeedForwardConfig& standard) const = 0;
  bool has_keys();

 private:
  std::string name_;
};

template <class T, class Config>
class FeedForwardKeysOf final : public FeedForwardKeys {
 public:
  using FeedForwardKeys::FeedForwardKeys;
  Config config;
  void visit(Visitor& v) override { config.visit(v); }
  bool position_wise() const override {
    if constexpr (requires { T::position_wise; })
      return T::position_wise;
    else
      return true;
  }
  std::unique_ptr<Layer> make(Module* parent, std::string name,
                              const FeedForwardConfig& standard) const override {
    Config c = config;
    c.d_model = standard.d_model;
    if constexpr (requires { c.d_hidden = standard.d_hidden; }) c.d_hidden = standard.d_hidden;
    if constexpr (requires { c.bias = standard.bias; }) c.bias = standard.bias;
    if constexpr (requires { c.dropout = standard.dropout; }) c.dropout = standard.dropout;
    if constexpr (requires { c.init_std = standard.init_std; }) c.init_std = standard.init_std;
    if constexpr (requires { c.output_init_std = standard.output_init_std; })
      c.output_init_std = standard.output_init_std;
    check_config(name, c);
    return std::make_unique<T>(parent, std::move(name), c);
  }
};

class FeedForwardRegistry {
 public:
  // A name that is taken is an Error.
  template <class T, class Config>
  void add(const std::string& name) {
    insert(name, [name] { return std::make_shared<FeedForwardKeysOf<T, Config>>(name); });
  }

  std::vector<std::string> names() const;  // with "feed_forward", the standard one, first
  std::shared_ptr<FeedForwardKeys> keys(
      const std::string& name) const;  // null for the standard one and for no layer

 private:
  using Make = std::function<std::shared_ptr<FeedForwardKeys>()>;
  void insert(const std::string& name, Make make);

  std::map<std::string, Make> layers_;
};

FeedForwardRegistry& feed_forward_registry();

}  // namespace bonsai
