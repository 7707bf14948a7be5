// Loads a config struct from a YAML file, strictly: what the user wrote is what the run uses, or an error.
//
//   auto run = load_config<RunConfig>("configs/mine.yaml", {"trainer.max_steps=10"});
//
//   mine.yaml:7:5: model.n_haeds is not a key of model; did you mean n_heads? (known: n_layers, n_heads, ...)
//
// A number is a number however it is written or quoted: 1e-4, 1E-4, .0001, '1e-4'; 0100 is 100. A whole
// number may be 1e3. A bool is true or false. No key may stand twice, be unknown or be empty. What is left
// out keeps its default. The same in every locale. document.h says which YAML is read.
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
  explicit ConfigFile(const std::filesystem::path& path);                       // ConfigError
  static ConfigFile from_text(std::string_view text, const std::string& name);  // name: for errors

  // On top of the file: "trainer.max_steps=10". The value is taken as it is, quotes are part of it. The last
  // for a key wins. What is wrong with it, load() says.
  void set(const std::string& setting);

  // Removes a key of the file, or a section: "data.characters".
  void unset(const std::string& path);

  // Removes the keys of the file that are none with the settings but are without them, as data.characters with
  // data.source=file. Returns their paths.
  template <class Config>
  std::vector<std::string> drop_unused() {
    return drop_unused_by(fresh<Config>());
  }

  // Gives keys of an earlier version their present names (Visitor::renamed). For `bonsai convert`: elsewhere they are
  // errors.
  template <class Config>
  void rename_old_keys() {
    rename_old_keys_by(fresh<Config>());
  }

  // `config` with what the file and the settings say, also if its values contradict each other. One ConfigError of all
  // that is wrong, a line each. visit() may choose the next section by a value that it has just visited.
  template <class Config>
  Config read(Config config = {}) const {
    load_by([&config](Visitor& v) { config.visit(v); }, fresh<Config>());
    return config;
  }

  // The same, and the values must fit together: misfit(config), if there is one, says which do not, as a sentence.
  template <class Config>
  Config load(Config config = {}) const {
    config = read(std::move(config));
    if constexpr (requires { misfit(config); })
      if (const std::string why = misfit(config); !why.empty()) throw ConfigError(document_.name + ": " + why);
    return config;
  }

 private:
  using Visit = std::function<void(Visitor&)>;

  explicit ConfigFile(Document document) : file_(document), document_(std::move(document)) {}
  // Visits a config that nothing has been loaded into.
  template <class Config>
  static Visit fresh() {
    return [](Visitor& v) { Config().visit(v); };
  }
  void load_by(const Visit& visit, const Visit& visit_fresh) const;
  Node* entry_at(const std::string& path, const Place& place = {});
  void rename_old_keys_by(const Visit& visit_fresh);
  std::vector<std::string> drop_unused_by(const Visit& visit_fresh);
  std::map<std::string, std::string> conditional_keys(const Visit& visit_fresh, int choices) const;

  Document file_, document_;  // without the settings and with them
};

template <class Config>
Config load_config(const std::filesystem::path& path, const std::vector<std::string>& settings = {},
                   Config config = {}) {
  ConfigFile file(path);
  for (const std::string& setting : settings) file.set(setting);
  return file.load(std::move(config));
}

// The number that is the whole of `text`, in decimal and finite.
bool parse_number(std::string_view text, int64_t& value);  // 12, +12, 012, 1e3
bool parse_number(std::string_view text, double& value);   // also 1.5, .5e-3

// The one of `words` that was probably meant by `word`; null if none is near.
const std::string* nearest_word(const std::string& word, const std::vector<std::string>& words);

}  // namespace bonsai
