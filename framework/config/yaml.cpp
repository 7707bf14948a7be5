#include "bonsai/framework/config/yaml.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <deque>
#include <fstream>
#include <limits>
#include <set>
#include <system_error>

namespace bonsai {
namespace {

namespace fs = std::filesystem;

std::string read_file(const fs::path& path) {
  const std::string name = path.string();
  std::error_code code;
  if (fs::is_directory(path, code)) throw ConfigError(name + ": is a directory; a config is a file");
  if (fs::exists(path, code) && !fs::is_regular_file(path, code))
    throw ConfigError(name + ": is a pipe or a device, which might never end; write the config to a file");
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxConfigBytes + 1, '\0');
  if (file) file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad())
    throw ConfigError(fmt::format("{}: cannot be read: {}", name, std::generic_category().message(errno)));
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

// Lower case, with - replaced by _.
std::string plain(std::string word) {
  for (char& c : word) c = c == '-' ? '_' : c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return word;
}

// Optimal string alignment distance: insertions, deletions, substitutions and swaps of adjacent letters.
size_t edits_between(const std::string& a, const std::string& b) {
  std::vector<size_t> before, last(b.size() + 1), now(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        now[j] = std::min(now[j], before[j - 2] + 1);
    }
    before = last;
    last = now;
  }
  return last[b.size()];
}

std::string shown(const Node& node) {
  constexpr size_t most = 60;
  switch (node.kind) {
    case Node::Kind::empty:
      return "empty";
    case Node::Kind::list:
      return "a list";
    case Node::Kind::map:
      return "a section";
    case Node::Kind::scalar:
      break;
  }
  size_t end = std::min(most, node.text.size());
  while (end < node.text.size() && (node.text[end] & 0xC0) == 0x80) --end;
  return fmt::format("'{}{}'", node.text.substr(0, end), end < node.text.size() ? "..." : "");
}

std::string rule(const char* kind, const Range& range) {
  const double infinity = std::numeric_limits<double>::infinity();
  return range.holds(-infinity) && range.holds(infinity) ? kind : fmt::format("{}, {}", kind, range.text());
}

class Loader final : public Visitor {
 public:
  explicit Loader(const Document& document) : problems_(document.problems) {
    sections_.push_back({"", &document.root, {}});
  }

  void operator()(const char* key, int64_t& value, const char*, const Range& range) override {
    load_number(key, value, range, "a whole number");
  }
  void operator()(const char* key, double& value, const char*, const Range& range) override {
    load_number(key, value, range, "a number");
  }
  void operator()(const char* key, bool& value, const char*) override {
    const Node* node = find(key);
    if (!node) return;
    if (const bool yes = node->text == "true"; is_scalar(node) && (yes || node->text == "false")) {
      value = yes;
      return;
    }
    const std::string word = plain(node->text);
    const bool yes = OneOf{{"true", "yes", "on", "y", "1"}}.holds(word);
    const bool no = OneOf{{"false", "no", "off", "n", "0"}}.holds(word);
    complain(key, *node, "true or false", yes ? "; write true" : no ? "; write false" : "");
  }
  void operator()(const char* key, std::string& value, const char*) override {
    const Node* node = find(key);
    if (is_scalar(node))
      value = node->text;
    else if (node)
      complain(key, *node, "text", node->kind == Node::Kind::empty ? "; write '' for none" : "");
  }
  void operator()(const char* key, std::string& value, const char*, const OneOf& words) override {
    choices_.push_back({path_of(key), words.words});
    load_word(key, value, words);
  }

  void renamed(const char* before, const char* now) override {
    renames_.push_back({sections_[current_].path, before, now});
  }

  // Call this after the visit.
  std::vector<Problem> take_problems() { return std::move(problems_); }

  struct Unknown {
    std::string section, key;
    Place place;
    std::string path() const { return join_path(section, key); }
  };

  // All keys of the file that were not visited.
  std::vector<Unknown> unknown_keys() const {
    std::vector<Unknown> all;
    for (const Section& section : sections_) {
      if (!section.node) continue;
      for (const Node& entry : section.node->entries)
        if (!OneOf{section.keys}.holds(entry.key)) all.push_back({section.path, entry.key, entry.key_place});
    }
    return all;
  }

  // "model.n_haeds is not a key of model; did you mean n_heads? (known: n_layers, n_heads, ...)"
  // `condition` says with which other values it would be a key; empty if never.
  std::string text(const Unknown& unknown, const std::string& condition) const {
    const Section& section = *std::find_if(sections_.begin(), sections_.end(),
                                           [&](const Section& s) { return s.path == unknown.section; });
    const std::string& key = unknown.key;
    const std::string* near = nearest_word(key, section.keys);
    std::string hint = meant(near);
    if (!near || plain(*near) != plain(key)) {
      for (const Section& other : sections_)
        for (const std::string& known : other.keys)
          if (plain(known) == plain(key) || join_path(other.path, known) == key)
            hint =
                fmt::format("; {} is a key of {}", known, other.path.empty() ? "the top level" : other.path);
    }
    for (const Rename& rename : renames_)
      if (rename.section == unknown.section && rename.before == key)
        hint = "; it is called " + rename.now + " now";
    if (!condition.empty()) hint = "; it is one only with " + condition;
    const size_t most = hint.empty() ? section.keys.size() : std::min<size_t>(6, section.keys.size());
    const std::vector<std::string> first(section.keys.begin(),
                                         section.keys.begin() + static_cast<ptrdiff_t>(most));
    return fmt::format("{} is not a key{}{} (known: {}{})", unknown.path(),
                       section.path.empty() ? "" : " of " + section.path, hint, fmt::join(first, ", "),
                       most < section.keys.size() ? ", ..." : "");
  }

  std::set<std::string> keys() const {  // paths of all visited keys
    std::set<std::string> all;
    for (const Section& section : sections_)
      for (const std::string& key : section.keys) all.insert(join_path(section.path, key));
    return all;
  }

  struct Choice {
    std::string path;
    std::vector<std::string> words;
  };
  const std::vector<Choice>& choices() const { return choices_; }

  struct Rename {
    std::string section, before, now;
  };
  const std::vector<Rename>& renames() const { return renames_; }

 protected:
  void enter(const char* key, const char*, const std::function<void(Visitor&)>& visit_section) override {
    const Node* node = find(key);
    if (node && node->kind != Node::Kind::map) {
      complain(key, *node, "a section with keys of its own");
      node = nullptr;
    }
    enter_node(path_of(key), node, visit_section);
  }

  // A list in a setting is YAML: groups=[{match: "*.norm*"}]
  void repeat(const char* key, const char*, size_t, const std::function<void(Visitor&, size_t)>& visit_item,
              const std::function<void(Visitor&)>&) override {
    const Node* node = find(key);
    if (!node) return;
    if (is_scalar(node) && node->text.starts_with('[')) {
      settings_.push_back(parse_document("list: " + node->text, node->place.text()));
      node = &settings_.back().root.entries[0];
    }
    if (node->kind != Node::Kind::list)
      return complain(key, *node, "a list of sections, as in [{...}, {...}]");
    enter_node(path_of(key), node, [&](Visitor&) {
      for (size_t i = 0; i < node->entries.size(); ++i)
        enter(node->entries[i].key.c_str(), "", [&](Visitor& v) { visit_item(v, i); });
    });
  }

  // `key: name`, or a section with the name as its `kind`.
  void choose(const char* key, std::string& name, const char*, const OneOf& words,
              const std::function<void(Visitor&)>& visit_keys) override {
    const Node* node = find(key);
    const bool is_section = node && node->kind == Node::Kind::map;
    choices_.push_back({path_of(key), words.words});
    if (!is_section) load_word(key, name, words);
    enter_node(path_of(key), is_section ? node : nullptr, [&](Visitor& v) {
      if (is_section) load_word("kind", name, words);
      if (words.holds(name)) visit_keys(v);
    });
  }

 private:
  struct Section {
    std::string path;
    const Node* node;  // null if the file does not have it
    std::vector<std::string> keys;
  };

  static bool is_scalar(const Node* node) { return node && node->kind == Node::Kind::scalar; }
  static std::string meant(const std::string* word) {
    return word ? fmt::format("; did you mean {}?", *word) : "";
  }
  std::string path_of(const char* key) const { return join_path(sections_[current_].path, key); }

  const Node* find(const char* key) {
    Section& section = sections_[current_];
    if (!OneOf{section.keys}.holds(key)) section.keys.emplace_back(key);
    return section.node ? find_entry(*section.node, key) : nullptr;
  }

  void enter_node(const std::string& path, const Node* node,
                  const std::function<void(Visitor&)>& visit_section) {
    const size_t outer = current_;
    const auto seen =
        std::find_if(sections_.begin(), sections_.end(), [&](const Section& s) { return s.path == path; });
    current_ = static_cast<size_t>(seen - sections_.begin());
    if (seen == sections_.end()) sections_.push_back({path, node, {}});
    visit_section(*this);
    current_ = outer;
  }

  void load_word(const char* key, std::string& value, const OneOf& words) {
    const Node* node = find(key);
    if (is_scalar(node) && words.holds(node->text))
      value = node->text;
    else if (node)
      complain(key, *node, words.text(), meant(nearest_word(node->text, words.words)));
  }

  template <class T>
  void load_number(const char* key, T& value, const Range& range, const char* kind) {
    const Node* node = find(key);
    T number{};
    if (is_scalar(node) && parse_number(node->text, number) && range.holds(static_cast<double>(number)))
      value = number;
    else if (node)
      complain(key, *node, rule(kind, range));
  }

  void complain(const char* key, const Node& node, const std::string& rule, std::string hint = "") {
    if (hint.empty() && node.kind == Node::Kind::empty) hint = "; leave the key out for its default";
    problems_.push_back(
        {node.place, fmt::format("{} is {}; it must be {}{}", path_of(key), shown(node), rule, hint)});
  }

  std::vector<Problem> problems_;
  std::deque<Document> settings_;
  std::vector<Section> sections_;
  std::vector<Choice> choices_;
  std::vector<Rename> renames_;
  size_t current_ = 0;
};

std::string_view without_plus(std::string_view text) {
  const bool plus = text.size() > 1 && text[0] == '+' && text[1] != '-';
  return plus ? text.substr(1) : text;
}

template <class T>
bool parse_whole(std::string_view text, T& value) {
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  return code == std::errc() && end == text.data() + text.size();
}

// Removes the entry with this path below `section`. Returns whether there was one.
bool remove_entry(Node& section, std::string_view path) {
  const size_t dot = path.find('.');
  if (dot == path.npos)
    return std::erase_if(section.entries, [&](const Node& n) { return n.key == path; }) > 0;
  Node* entry = const_cast<Node*>(find_entry(section, path.substr(0, dot)));
  return entry && remove_entry(*entry, path.substr(dot + 1));
}

}  // namespace

bool parse_number(std::string_view text, double& value) {
  return parse_whole(without_plus(text), value) && std::isfinite(value);
}

bool parse_number(std::string_view text, int64_t& value) {
  if (parse_whole(without_plus(text), value)) return true;
  constexpr double exact = 9007199254740992;  // 2^53: larger doubles may have been rounded
  double number = 0;
  if (!parse_number(text, number) || std::abs(number) >= exact || number != std::trunc(number)) return false;
  value = static_cast<int64_t>(number);
  return true;
}

const std::string* nearest_word(const std::string& word, const std::vector<std::string>& words) {
  const std::string wanted = plain(word).substr(0, 100);
  const std::string* nearest = nullptr;
  size_t fewest = std::max<size_t>(1, wanted.size() / 3) + 1;
  for (const std::string& candidate : words) {
    const size_t edits = edits_between(wanted, plain(candidate));
    if (edits >= fewest) continue;
    fewest = edits;
    nearest = &candidate;
  }
  return nearest;
}

ConfigFile::ConfigFile(const fs::path& path) : document_(parse_document(read_file(path), path.string())) {}

ConfigFile ConfigFile::from_text(std::string_view text, const std::string& name) {
  return ConfigFile(parse_document(std::string(text), name));
}

void ConfigFile::set(const std::string& setting) {
  const Place place{"--set " + setting, 0, 0};
  const auto refuse = [&](const std::string& why) { document_.problems.push_back({place, why}); };
  const size_t equals = setting.find('=');
  const std::string path = setting.substr(0, equals);
  if (equals == std::string::npos || ("." + path + ".").find("..") != std::string::npos)
    return refuse("must be key=value, as in trainer.max_steps=10");
  if (find_bad_byte(setting) != std::string::npos) return refuse("is not UTF-8 text");

  if (Node* node = entry_at(path, place))
    *node = {Node::Kind::scalar, setting.substr(equals + 1), place, node->key, place, {}};
  else
    refuse("is in a list that has no item of this number");
}

// Returns the node of a path and adds it if there is none. A scalar on the path is the name of a part; it
// becomes a section with this `kind`. Items of a list are named by their index; returns null if there is no
// such item.
Node* ConfigFile::entry_at(const std::string& path, const Place& place) {
  Node* node = &document_.root;
  for (size_t start = 0, dot = 0; dot != std::string::npos; start = dot + 1) {
    if (node->kind == Node::Kind::empty) node->kind = Node::Kind::map;
    if (node->kind == Node::Kind::scalar) {
      node->entries = {Node{Node::Kind::scalar, node->text, node->place, "kind", node->key_place, {}}};
      node->kind = Node::Kind::map, node->place = place, node->text.clear();
    }
    dot = path.find('.', start);
    const std::string key = path.substr(start, dot == std::string::npos ? dot : dot - start);
    if (node->kind == Node::Kind::list && !find_entry(*node, key)) return nullptr;
    Node* entry = const_cast<Node*>(find_entry(*node, key));
    node = entry ? entry : &node->entries.emplace_back(Node{Node::Kind::empty, "", place, key, place, {}});
  }
  return node;
}

void ConfigFile::rename_old_keys_by(const Visit& visit_fresh) {
  Loader loader(document_);
  visit_fresh(loader);
  for (const Loader::Rename& rename : loader.renames()) {
    const Node* section =
        rename.section.empty() ? &document_.root : find_entry(document_.root, rename.section);
    const Node* entry = section ? find_entry(*section, rename.before) : nullptr;
    if (!entry) continue;
    const Node old = *entry;
    remove_entry(document_.root, join_path(rename.section, rename.before));
    const std::string path = join_path(rename.section, rename.now);
    if (Node* now = entry_at(path)) *now = {old.kind, old.text, old.place, now->key, now->key_place, {}};
    // A key that belongs to a part that was not chosen is dropped; it had no effect.
    Loader after(document_);
    visit_fresh(after);
    if (!after.keys().contains(path)) remove_entry(document_.root, path);
  }
}

void ConfigFile::unset(const std::string& path) {
  const Place place{"--unset " + path, 0, 0};
  if (!remove_entry(document_.root, path)) document_.problems.push_back({place, "the file has no such key"});
}

std::vector<std::string> ConfigFile::drop_unused_by(const Visit& visit_fresh) {
  Loader before(file_), now(document_);
  visit_fresh(before);
  visit_fresh(now);
  std::vector<std::string> dropped;
  for (const Loader::Unknown& unknown : now.unknown_keys())
    if (unknown.place.line > 0 && before.keys().contains(unknown.path()) &&
        remove_entry(document_.root, unknown.path()))
      dropped.push_back(unknown.path());
  return dropped;
}

// Returns the keys that exist if another value is chosen, with the condition: "data.path" -> "data.source:
// file". Up to `choices` values may have to be changed.
std::map<std::string, std::string> ConfigFile::conditional_keys(const Visit& visit_fresh, int choices) const {
  Loader now(document_);
  visit_fresh(now);
  const std::set<std::string> known = now.keys();
  std::map<std::string, std::string> all, deeper;
  for (const Loader::Choice& choice : now.choices()) {
    std::map<std::string, std::vector<std::string>> words;
    for (const std::string& word : choice.words) {
      ConfigFile other = *this;
      other.set(choice.path + "=" + word);
      Loader then(other.document_);
      visit_fresh(then);
      bool more = false;
      for (const std::string& key : then.keys())
        if (!known.contains(key)) words[key].push_back(word), more = true;
      if (!more || choices == 1) continue;
      for (const auto& [key, condition] : other.conditional_keys(visit_fresh, choices - 1))
        deeper.emplace(key, fmt::format("{}: {} and {}", choice.path, word, condition));
    }
    for (const auto& [key, some] : words) {
      std::string& condition = all[key];
      condition += fmt::format("{}{}: {}", condition.empty() ? "" : ", or ", choice.path,
                               fmt::join(some, " or "));
    }
  }
  for (const auto& [key, condition] : deeper)
    if (!known.contains(key)) all.emplace(key, condition);
  return all;
}

void ConfigFile::load_by(const Visit& visit, const Visit& visit_fresh) const {
  Loader loader(document_);
  visit(loader);
  std::vector<Problem> problems = loader.take_problems();
  const std::vector<Loader::Unknown> unknown = loader.unknown_keys();
  const auto conditions =
      unknown.empty() ? std::map<std::string, std::string>() : conditional_keys(visit_fresh, 2);
  for (const Loader::Unknown& key : unknown) {
    const auto at = conditions.find(key.path());
    problems.push_back({key.place, loader.text(key, at == conditions.end() ? "" : at->second)});
  }
  if (!problems.empty()) throw_problems(document_.name, std::move(problems));
}

}  // namespace bonsai
