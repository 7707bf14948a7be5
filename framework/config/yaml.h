// Loads a config struct from a YAML file. Everything in the file is used or is an error.
//
//   auto run = load_config<RunConfig>("configs/mine.yaml", {"trainer.max_steps=10"});
//
//   mine.yaml:7:5: model.n_haeds is not a key of model; did you mean n_heads? (known: n_layers, n_heads, ...)
//
// Numbers may be written in any way and quoted: 1e-4, 1E-4, .0001, '1e-4'; 0100 is 100. A whole number may be
// 1e3. A bool is true or false. A key that is unknown, empty or given twice is an error. A key that is left
// out has its default. The locale has no effect. document.h describes the accepted YAML.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bonsai/framework/config/document.h"
#include "bonsai/framework/config/visit.h"

namespace bonsai {

class ConfigFile {
 public:
  explicit ConfigFile(const std::filesystem::path& path);  // throws ConfigError if it cannot be read
  static ConfigFile from_text(std::string_view text, const std::string& name);  // the name is for errors

  // Overrides a key of the file: "trainer.max_steps=10". Quotes are part of the value. The last setting of a
  // key applies. Errors are reported by load().
  void set(const std::string& setting);

  // Removes a key or section of the file: "data.characters".
  void unset(const std::string& path);

  // Removes keys of the file that the settings made invalid, such as data.characters with data.source=file.
  // Returns their paths.
  template <class Config>
  std::vector<std::string> drop_unused() {
    return drop_unused_by(fresh<Config>());
  }

  // Renames keys of earlier versions (Visitor::renamed) for `bonsai convert`; load() reports them as errors.
  template <class Config>
  void rename_old_keys() {
    rename_old_keys_by(fresh<Config>());
  }

  // Returns `config` with the values of the file and the settings, even if they contradict each other. Throws
  // one ConfigError with a line per error. visit() may choose a section by a value visited before.
  template <class Config>
  Config read(Config config = {}) const {
    load_by([&config](Visitor& v) { config.visit(v); }, fresh<Config>());
    return config;
  }

  // Also throws ConfigError if misfit(config) is defined and returns a sentence.
  template <class Config>
  Config load(Config config = {}) const {
    config = read(std::move(config));
    if constexpr (requires { misfit(config); })
      if (const std::string why = misfit(config); !why.empty())
        throw ConfigError(document_.name + ": " + why);
    return config;
  }

 private:
  using Visit = std::function<void(Visitor&)>;

  explicit ConfigFile(Document document) : file_(document), document_(std::move(document)) {}
  // Returns a function that visits a default config.
  template <class Config>
  static Visit fresh() {
    return [](Visitor& v) { Config().visit(v); };
  }
  void load_by(const Visit& visit, const Visit& visit_fresh) const;
  Node* entry_at(const std::string& path, const Place& place = {});
  void rename_old_keys_by(const Visit& visit_fresh);
  std::vector<std::string> drop_unused_by(const Visit& visit_fresh);
  std::map<std::string, std::string> conditional_keys(const Visit& visit_fresh, int choices) const;

  Document file_, document_;  // without and with the settings
};

// Reads a file, applies `KEY=VALUE` settings and loads the config. Throws a ConfigError that lists all
// mistakes.
template <class Config>
Config load_config(const std::filesystem::path& path, const std::vector<std::string>& settings = {},
                   Config config = {}) {
  ConfigFile file(path);
  for (const std::string& setting : settings) file.set(setting);
  return file.load(std::move(config));
}

// Parses `text` as one finite decimal number. Returns false if it is anything else.
bool parse_number(std::string_view text, int64_t& value);  // 12, +12, 012, 1e3
bool parse_number(std::string_view text, double& value);   // also 1.5, .5e-3

// The one of `words` that is most similar to `word`; null if none is similar.
const std::string* nearest_word(const std::string& word, const std::vector<std::string>& words);

}  // namespace bonsai
