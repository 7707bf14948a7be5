// Prints configs: the values of a run, and the available keys with their help, for people and for editors.
//
//   fmt::print("{}", explain_config(config_keys(run)));
#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "bonsai/framework/config/visit.h"

namespace bonsai {

// One key or section listed by a visit().
struct ConfigKey {
  using Value = std::variant<std::monostate, int64_t, double, bool, std::string>;
  std::string path, help;  // "model.n_heads"
  Value value, standard;   // current and default value; monostate for a section, whose keys follow it
  Range range{};           // allowed values of a number
  OneOf words{};           // allowed values of a string; empty: any text
  // For a list: the keys of an item with their defaults. The value of a list is YAML text, such as
  // [{match: "*.norm*", weight_decay: 0}].
  std::vector<ConfigKey> item = {};
  // For a key of a part that is not chosen, how to choose it: "model.position.kind: rope".
  std::string condition = {};

  bool is_section() const { return value.index() == 0; }
  bool changed() const { return value != standard; }
  std::string name() const { return path.substr(path.rfind('.') + 1); }
  std::string text() const;  // the value as YAML; empty for a section
  std::string rule() const;  // "at least 1", "true or false"
};

class KeyCollector final : public Visitor {
 public:
  // With `follow`, each value is replaced by the value of that key in `follow` after it was recorded. A
  // visit() that chooses sections by values then visits the sections of `follow`. With `all_parts`, the keys
  // of parts that are not chosen are added after those of the chosen part.
  explicit KeyCollector(const std::vector<ConfigKey>* follow = nullptr, bool all_parts = false)
      : follow_(follow), all_parts_(all_parts) {}

  void operator()(const char* key, int64_t& value, const char* help, const Range& range) override {
    add(key, value, help).range = range;
  }
  void operator()(const char* key, double& value, const char* help, const Range& range) override {
    add(key, value, help).range = range;
  }
  void operator()(const char* key, bool& value, const char* help) override { add(key, value, help); }
  void operator()(const char* key, std::string& value, const char* help) override { add(key, value, help); }
  void operator()(const char* key, std::string& value, const char* help, const OneOf& words) override {
    add(key, value, help).words = words;
  }
  std::vector<ConfigKey> take() { return std::move(keys_); }

 protected:
  void enter(const char* key, const char* help, const std::function<void(Visitor&)>& visit_section) override;
  void repeat(const char* key, const char* help, size_t count,
              const std::function<void(Visitor&, size_t)>& visit_item,
              const std::function<void(Visitor&)>& visit_fresh) override;
  // A part that has keys becomes a section with its name as `kind`; a part without keys becomes a key.
  void choose(const char* key, std::string& name, const char* help, const OneOf& words,
              const std::function<void(Visitor&)>& visit_keys) override;
  void choose_here(std::string& name, const char* help, const OneOf& words,
                   const std::function<void(Visitor&)>& visit_keys) override;

 private:
  void add_other_parts(std::string& name, const OneOf& words,
                       const std::function<void(Visitor&)>& visit_keys);
  template <class T>
  ConfigKey& add(const char* key, T& value, const char* help) {
    ConfigKey& added = insert({prefix_ + key, help, value, value});
    if (follow_)
      for (const ConfigKey& other : *follow_)
        if (other.path == added.path && std::holds_alternative<T>(other.value))
          value = std::get<T>(other.value);
    return added;
  }
  ConfigKey& insert(ConfigKey key);

  const std::vector<ConfigKey>* follow_;
  bool all_parts_;
  std::string prefix_;
  std::vector<ConfigKey> keys_;
};

// Gives each key the default of the key of the same path.
void set_defaults(std::vector<ConfigKey>& keys, const std::vector<ConfigKey>& defaults);

// The keys of `config`, with the values of `defaults` as their defaults.
template <class Config>
std::vector<ConfigKey> config_keys(Config config = {}, Config defaults = {}) {
  KeyCollector now;
  config.visit(now);
  std::vector<ConfigKey> keys = now.take();
  KeyCollector before(&keys);
  defaults.visit(before);
  set_defaults(keys, before.take());
  return keys;
}

// The keys of `config` with their defaults, including the keys of parts that are not chosen.
template <class Config>
std::vector<ConfigKey> all_config_keys(Config config = {}) {
  KeyCollector all(nullptr, /*all_parts=*/true);
  config.visit(all);
  return all.take();
}

std::string dump_config(const std::vector<ConfigKey>& keys);  // YAML; loads to equal values
// One line per key, with * if the value is not the default.
std::string explain_config(const std::vector<ConfigKey>& keys);
std::string config_schema(const std::vector<ConfigKey>& keys);  // JSON Schema, draft 2020-12
// One table per section: key, default, range, help.
std::string config_markdown(const std::vector<ConfigKey>& keys);

}  // namespace bonsai
