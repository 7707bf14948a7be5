#include "bonsai/layers/registry.h"

#include "bonsai/framework/config/print.h"

namespace bonsai {

void register_feed_forward_files(FeedForwardRegistry& layers);  // written by CMake

bool FeedForwardKeys::has_keys() {
  KeyCollector keys;
  visit(keys);
  return !keys.take().empty();
}

std::vector<std::string> FeedForwardRegistry::names() const {
  std::vector<std::string> all = {"feed_forward"};
  for (const auto& [name, make] : layers_) all.push_back(name);
  return all;
}

std::shared_ptr<FeedForwardKeys> FeedForwardRegistry::keys(const std::string& name) const {
  const auto at = layers_.find(name);
  return at == layers_.end() ? nullptr : at->second();
}

void FeedForwardRegistry::insert(const std::string& name, Make make) {
  check(name != "feed_forward" && !layers_.contains(name), "registry", "there are two layers named {}", name);
  layers_[name] = std::move(make);
}

FeedForwardRegistry& feed_forward_registry() {
  static FeedForwardRegistry registry = [] {
    FeedForwardRegistry all;
    register_feed_forward_files(all);
    return all;
  }();
  return registry;
}

}  // namespace bonsai
