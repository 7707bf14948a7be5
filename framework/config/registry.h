// Parts that a config names: layers, norms, schedules, tasks. A kind of part is a struct that says what parts
// of it are and what they are made from:
//
//   struct FeedForwardKind {
//     static constexpr const char *name = "feed-forward layer", *standard = "feed_forward";
//     using Make = std::unique_ptr<Layer>(Module* parent, std::string name, const BlockContext& block);
//     static void register_all();  // adds the parts of this repository; CMake writes it
//   };
//
// A part is one source file: a config struct with visit() for its own keys, a class, and what registers it:
//
//   void register_swiglu() { add_part<FeedForwardKind, SwiGLU, SwiGLUConfig>("swiglu"); }
//
// The class is made from (the arguments of Make, the config), or by Kind::make<Part>(config, arguments...) if
// the kind has that. A config holds a part as a member, `Choice<FeedForwardKind> mlp;`, and lists it in its
// visit(): `v.choice("mlp", mlp, "the sublayer after attention")`. In YAML that is `mlp: swiglu`, or a
// section of the part's own keys with its name as `kind`: `mlp: {kind: feed_forward, activation: relu}`.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <typeindex>
#include <utility>
#include <vector>

#include "bonsai/framework/config/visit.h"
#include "bonsai/framework/core/error.h"

namespace bonsai {

// The config of a part that is still to be made, whatever its type.
template <class Kind, class Make = typename Kind::Make>
class PartConfig;

template <class Kind, class Base, class... Args>
class PartConfig<Kind, std::unique_ptr<Base>(Args...)> {
 public:
  virtual ~PartConfig() = default;
  virtual void visit(Visitor& v) = 0;
  virtual std::unique_ptr<Base> make(Args... args) const = 0;
  virtual std::unique_ptr<PartConfig> clone() const = 0;
  virtual const void* get(std::type_index type) const = 0;  // the config if that is its type; otherwise null
  virtual std::string misfit_text() const = 0;              // misfit(config), if there is one
};

template <class Kind, class Part, class Config, class Make>
class PartConfigOf;

template <class Kind, class Part, class Config, class Base, class... Args>
class PartConfigOf<Kind, Part, Config, std::unique_ptr<Base>(Args...)> final : public PartConfig<Kind> {
 public:
  explicit PartConfigOf(Config config = {}) : config_(std::move(config)) {}
  void visit(Visitor& v) override { config_.visit(v); }
  std::unique_ptr<Base> make(Args... args) const override {
    if constexpr (requires { Kind::template make<Part>(config_, std::forward<Args>(args)...); })
      return Kind::template make<Part>(config_, std::forward<Args>(args)...);
    else
      return std::make_unique<Part>(std::forward<Args>(args)..., config_);
  }
  std::unique_ptr<PartConfig<Kind>> clone() const override { return std::make_unique<PartConfigOf>(config_); }
  const void* get(std::type_index type) const override { return type == typeid(Config) ? &config_ : nullptr; }
  std::string misfit_text() const override {
    if constexpr (requires { misfit(config_); }) return misfit(config_);
    return "";
  }

 private:
  Config config_;
};

// For a part without keys.
struct NoKeys {
  template <class V>
  void visit(V&) {}
};

// The config of a class that is also built directly, as that of a part: a file gives the keys of
// visit_keys(), if there is one, and what contains the part sets the rest.
// `Keys<FeedForwardConfig>{{.activation = "relu"}}`
template <class Config>
struct Keys : Config {
  template <class V>
  void visit(V& v) {
    if constexpr (requires { this->visit_keys(v); }) this->visit_keys(v);
  }
};

template <class Kind>
class Registry {
 public:
  // Error if the name is taken.
  template <class Part, class Config = NoKeys>
  void add(const std::string& name) {
    check(!parts_.contains(name), "registry", "there are two parts of the kind {} named {}", Kind::name, name);
    parts_.emplace(name, Entry{typeid(Config), std::make_unique<PartConfigOf<Kind, Part, Config, typename Kind::Make>>()});
  }

  std::vector<std::string> names() const {  // sorted
    std::vector<std::string> all;
    for (const auto& [name, part] : parts_) all.push_back(name);
    return all;
  }

  // With its default keys; null if there is none of the name.
  std::unique_ptr<PartConfig<Kind>> config(const std::string& name) const {
    const auto at = parts_.find(name);
    return at == parts_.end() ? nullptr : at->second.standard->clone();
  }

  // The part whose config has this type; Error if there is none.
  const std::string& name_of(std::type_index config) const {
    for (const auto& [name, part] : parts_)
      if (part.config == config) return name;
    fail("registry", "no part of the kind {} has a config of this type", Kind::name);
  }

  static Registry& unfilled() {
    static Registry registry;
    return registry;
  }

 private:
  struct Entry {
    std::type_index config;
    std::unique_ptr<PartConfig<Kind>> standard;
  };
  std::map<std::string, Entry> parts_;
};

template <class Kind>
Registry<Kind>& registry() {
  static const bool filled = (Kind::register_all(), true);
  static_cast<void>(filled);
  return Registry<Kind>::unfilled();
}

template <class Kind, class Part, class Config = NoKeys>
void add_part(const std::string& name) {
  Registry<Kind>::unfilled().template add<Part, Config>(name);
}

// A part by name, with its own keys. A value: copies are independent. The name may be wrong until it is
// visited or made.
template <class Kind>
class Choice {
 public:
  Choice() : Choice(Kind::standard) {}
  Choice(const char* name) : name_(name) {}
  Choice(std::string name) : name_(std::move(name)) {}
  template <class Config>
    requires requires(Config c, Visitor& v) { c.visit(v); }
  Choice(Config config) : name_(registry<Kind>().name_of(typeid(Config))) {
    as<Config>() = std::move(config);
  }
  Choice(const Choice& other)
      : name_(other.name_),
        config_(other.config_ ? other.config_->clone() : nullptr),
        config_name_(other.config_name_) {}
  Choice& operator=(const Choice& other) {
    name_ = other.name_, config_ = other.config_ ? other.config_->clone() : nullptr, config_name_ = other.config_name_;
    return *this;
  }
  Choice(Choice&&) = default;
  Choice& operator=(Choice&&) = default;

  const std::string& name() const { return name_; }
  bool operator==(std::string_view name) const { return name_ == name; }

  // The part's own config; Error if it has another type.
  template <class Config>
  Config& as() {
    const Config* found = find<Config>();
    check(found != nullptr, Kind::name, "the config of {} has another type than was asked for", name_);
    return const_cast<Config&>(*found);  // this choice is not const
  }

  // The same, but null if it has another type.
  template <class Config>
  const Config* find() const {
    return static_cast<const Config*>(config().get(typeid(Config)));
  }

  // Which of its keys contradict each other, as a sentence; empty if none do.
  std::string misfit_text() const { return config().misfit_text(); }

  template <class... Args>
  auto make(Args&&... args) const {
    return config().make(std::forward<Args>(args)...);
  }

 private:
  friend class Visitor;

  PartConfig<Kind>& config() const {
    if (!config_ || config_name_ != name_) config_ = registry<Kind>().config(name_), config_name_ = name_;
    check(config_ != nullptr, Kind::name, "there is none named '{}'; use {}", name_, OneOf{registry<Kind>().names()}.text());
    return *config_;
  }

  std::string name_;
  mutable std::unique_ptr<PartConfig<Kind>> config_;  // made when it is needed
  mutable std::string config_name_ = name_;
};

template <class Kind>
void Visitor::choice(const char* key, Choice<Kind>& choice, const char* help) {
  choose(key, choice.name_, help, OneOf{registry<Kind>().names()}, [&](Visitor& v) { choice.config().visit(v); });
}

template <class Kind>
void Visitor::part(Choice<Kind>& choice, const char* help) {
  choose_here(choice.name_, help, OneOf{registry<Kind>().names()},
              [&](Visitor& v) { choice.config().visit(v); });
}

}  // namespace bonsai
