// Configs are plain structs that list their keys once, in visit():
//
//   template <class V> void visit(V& v) {
//     v("d_model", d_model, "width of the residual stream", at_least(1));
//   }
//
// Checking, loading, printing and help are Visitors over this list. A default is written only in the struct,
// a range only in the list.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace bonsai {

// The allowed values of a number, bounds included.
struct Range {
  double least, most;
  std::string text() const;  // "at least 1", "from 0 to 1"
  bool holds(double value) const { return value >= least && value <= most; }  // false for NaN
};
// The range [least, infinity), and [least, most].
Range at_least(double least);
Range between(double least, double most);

// The allowed values of a string.
struct OneOf {
  std::vector<std::string> words;
  std::string text() const;  // "one of a, b"
  bool holds(const std::string& word) const;
};

template <class Kind>
class Choice;  // registry.h

class Visitor {
 public:
  virtual ~Visitor() = default;
  virtual void operator()(const char* key, int64_t& value, const char* help, const Range& range) = 0;
  virtual void operator()(const char* key, double& value, const char* help, const Range& range) = 0;
  virtual void operator()(const char* key, bool& value, const char* help) = 0;
  virtual void operator()(const char* key, std::string& value, const char* help) = 0;  // any text
  virtual void operator()(const char* key, std::string& value, const char* help, const OneOf& words) = 0;

  // A section: the keys of another struct under `key`.
  template <class Config>
  void section(const char* key, Config& config, const char* help) {
    enter(key, help, [&config](Visitor& v) { config.visit(v); });
  }

  // A list of structs: `groups: [{match: "*.norm*"}]`.
  template <class Config>
  void list(const char* key, std::vector<Config>& items, const char* help) {
    repeat(key, help, items.size(), [&items](Visitor& v, size_t i) {
      if (i == items.size()) items.emplace_back();
      items[i].visit(v);
    }, [](Visitor& v) { Config().visit(v); });
  }

  // A part (registry.h) and its own keys under `key`.
  template <class Kind>
  void choice(const char* key, Choice<Kind>& choice, const char* help);

  // A part within the current section: its name is the key `kind`, and its keys are keys of this section.
  template <class Kind>
  void part(Choice<Kind>& choice, const char* help);

  // The key `now` was called `before` in an earlier version; errors about the old name mention the new one.
  virtual void renamed(const char* /*before*/, const char* /*now*/) {}

 protected:
  // A section: `visit_section` visits its keys.
  virtual void enter(const char* key, const char* help,
                     const std::function<void(Visitor&)>& visit_section) = 0;
  // `visit_item(v, i)` visits item i of a list of `count` items; i = count appends an item. `visit_fresh`
  // visits an item with default values.
  virtual void repeat(const char* key, const char* help, size_t count,
                      const std::function<void(Visitor&, size_t)>& visit_item,
                      const std::function<void(Visitor&)>& visit_fresh) = 0;
  // Like choose, but within the current section, as the key `kind` followed by the part's keys.
  virtual void choose_here(std::string& name, const char* help, const OneOf& words,
                           const std::function<void(Visitor&)>& visit_keys) {
    (*this)("kind", name, help, words);
    if (words.holds(name)) visit_keys(*this);
  }
  // `visit_keys` visits the keys of the part called `name`. It may be called only if `name` is one of
  // `words`.
  virtual void choose(const char* key, std::string& name, const char* help, const OneOf& words,
                      const std::function<void(Visitor&)>& visit_keys) = 0;
};

// Collects errors about values out of range: "n_heads is 0; it must be at least 1".
class RangeVisitor final : public Visitor {
 public:
  void operator()(const char* key, int64_t& value, const char* help, const Range& range) override;
  void operator()(const char* key, double& value, const char* help, const Range& range) override;
  void operator()(const char*, bool&, const char*) override {}
  void operator()(const char*, std::string&, const char*) override {}
  void operator()(const char* key, std::string& value, const char* help, const OneOf& words) override;

  const std::vector<std::string>& errors() const { return errors_; }

 protected:
  void enter(const char* key, const char* help, const std::function<void(Visitor&)>& visit_section) override;
  void repeat(const char* key, const char* help, size_t count,
              const std::function<void(Visitor&, size_t)>& visit_item,
              const std::function<void(Visitor&)>& visit_fresh) override;
  void choose(const char* key, std::string& name, const char* help, const OneOf& words,
              const std::function<void(Visitor&)>& visit_keys) override;

 private:
  std::string prefix_;
  std::vector<std::string> errors_;
};

// Throws an Error that lists all errors, if there are any.
void throw_errors(const std::string& where, const std::vector<std::string>& errors);

// Throws one Error that lists all keys whose values are out of range.
template <class Config>
void check_config(const std::string& where, Config config) {
  RangeVisitor visitor;
  config.visit(visitor);
  throw_errors(where, visitor.errors());
}

// Returns the config. Throws Error if a value is out of range or if misfit(config) is not empty.
template <class Config>
Config checked_config(const std::string& where, const Config& config) {
  check_config(where, config);
  if (const std::string why = misfit(config); !why.empty()) throw_errors(where, {why});
  return config;
}

}  // namespace bonsai
