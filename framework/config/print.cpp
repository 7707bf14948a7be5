#include "bonsai/framework/config/print.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace bonsai {
namespace {

using Json = nlohmann::ordered_json;

// Whether YAML 1.1 and 1.2 both read the unquoted text as this string.
bool needs_no_quotes(const std::string& text) {
  static const OneOf taken{
      {"true", "false", "yes", "no", "on", "off", "y", "n", "null", "nan", "inf", "infinity"}};
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  const auto inside = [&](char c) {
    return letter(c) || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '/';
  };
  std::string word = text;
  for (char& c : word) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return !text.empty() && (letter(text[0]) || text[0] == '/') &&
         std::all_of(text.begin(), text.end(), inside) && !taken.holds(word);
}

std::string scalar(const ConfigKey::Value& value) {
  if (const auto* text = std::get_if<std::string>(&value))
    return needs_no_quotes(*text) ? *text : Json(*text).dump(-1, ' ', false, Json::error_handler_t::replace);
  if (const auto* whole = std::get_if<int64_t>(&value)) return fmt::format("{}", *whole);
  if (const auto* number = std::get_if<double>(&value)) return fmt::format("{}", *number);
  return std::get<bool>(value) ? "true" : "false";
}

std::string text_of(const ConfigKey& key, const ConfigKey::Value& value) {
  return key.item.empty() ? scalar(value) : std::get<std::string>(value);  // the value of a list is YAML
}

Json json(double number) {
  constexpr double exact = 9007199254740992;
  if (std::abs(number) < exact && number == std::trunc(number)) return static_cast<int64_t>(number);
  return number;
}

Json json(const ConfigKey& key) {
  Json section{{"type", "object"},
               {"description", key.help},
               {"properties", Json::object()},
               {"additionalProperties", false}};
  if (key.is_section() && !key.words.words.empty())  // a part is a name or a section
    return {{"description", key.help}, {"anyOf", {{{"enum", key.words.words}}, section}}};
  if (key.is_section()) return section;
  if (!key.item.empty()) {
    section.erase("description");
    for (const ConfigKey& k : key.item) section["properties"][k.path] = json(k);
    return {{"type", "array"}, {"description", key.help}, {"items", section}};
  }
  static const char* const types[] = {"object", "integer", "number", "boolean", "string"};
  Json result{{"type", types[key.value.index()]}, {"description", key.help}};
  if (std::holds_alternative<int64_t>(key.value) || std::holds_alternative<double>(key.value)) {
    if (std::isfinite(key.range.least)) result["minimum"] = json(key.range.least);
    if (std::isfinite(key.range.most)) result["maximum"] = json(key.range.most);
  }
  if (!key.words.words.empty()) result["enum"] = key.words.words;
  if (const auto* whole = std::get_if<int64_t>(&key.standard)) result["default"] = *whole;
  if (const auto* number = std::get_if<double>(&key.standard)) result["default"] = json(*number);
  if (const auto* yes = std::get_if<bool>(&key.standard)) result["default"] = *yes;
  if (const auto* text = std::get_if<std::string>(&key.standard)) result["default"] = *text;
  return result;
}

// The object within the schema of a section.
Json* object_of(Json& schema) { return schema.contains("anyOf") ? &schema["anyOf"][1] : &schema; }

std::string table_cell(const std::string& text) {
  std::string result;
  for (char c : text) {
    if (c == '|') result += '\\';
    result += c;
  }
  return result;
}

}  // namespace

std::string ConfigKey::text() const { return is_section() ? "" : text_of(*this, value); }

std::string ConfigKey::rule() const {
  const double infinity = std::numeric_limits<double>::infinity();
  const bool any = range.holds(-infinity) && range.holds(infinity);
  switch (value.index()) {
    case 1:
      return any ? "a whole number" : range.text();
    case 2:
      return any ? "a number" : range.text();
    case 3:
      return "true or false";
    case 4:
      if (!item.empty()) return "a list";
      return words.words.empty() ? "text" : words.text();
    default:
      return "";
  }
}

// Inserts a key after the last key of its section, because a section may be visited several times.
ConfigKey& KeyCollector::insert(ConfigKey key) {
  auto at = std::find_if(keys_.begin(), keys_.end(), [&](const ConfigKey& k) { return k.path == key.path; });
  if (at != keys_.end()) return *at;
  const auto last = std::find_if(keys_.rbegin(), keys_.rend(),
                                 [&](const ConfigKey& k) { return (k.path + ".").starts_with(prefix_); });
  return *keys_.insert(last.base(), std::move(key));
}

void KeyCollector::enter(const char* key, const char* help,
                         const std::function<void(Visitor&)>& visit_section) {
  insert({prefix_ + key, help, {}, {}});
  const std::string outer = prefix_;
  prefix_ += std::string(key) + ".";
  visit_section(*this);
  prefix_ = outer;
}

void KeyCollector::repeat(const char* key, const char* help, size_t count,
                          const std::function<void(Visitor&, size_t)>& visit_item,
                          const std::function<void(Visitor&)>& visit_fresh) {
  std::vector<std::string> items;
  for (size_t i = 0; i < count; ++i) {
    KeyCollector item;
    visit_item(item, i);
    std::vector<std::string> values;
    for (const ConfigKey& k : item.keys_) values.push_back(fmt::format("{}: {}", k.path, k.text()));
    items.push_back(fmt::format("{{{}}}", fmt::join(values, ", ")));
  }
  const std::string value = fmt::format("[{}]", fmt::join(items, ", "));
  KeyCollector fresh;
  visit_fresh(fresh);
  insert({prefix_ + key, help, value, value}).item = fresh.take();
}

void KeyCollector::choose(const char* key, std::string& name, const char* help, const OneOf& words,
                          const std::function<void(Visitor&)>& visit_keys) {
  const std::string standard = name, path = prefix_ + key;
  if (follow_)
    for (const ConfigKey& other : *follow_)
      if (const auto* text = std::get_if<std::string>(&other.value);
          text && (other.path == path || other.path == path + ".kind"))
        name = *text;
  KeyCollector own(nullptr, all_parts_);
  if (words.holds(name)) visit_keys(own);
  if (all_parts_) own.add_other_parts(name, words, visit_keys);
  if (own.keys_.empty()) {
    insert({path, help, standard, standard}).words = words;
    return;
  }
  enter(key, help, [&](Visitor& v) {
    std::string kind = standard;
    v("kind", kind, "name of the part", words);
    visit_keys(v);
    if (all_parts_) add_other_parts(name, words, visit_keys);
  });
  insert({path, help, {}, {}}).words = words;
}

void KeyCollector::choose_here(std::string& name, const char* help, const OneOf& words,
                               const std::function<void(Visitor&)>& visit_keys) {
  Visitor::choose_here(name, help, words, visit_keys);
  if (all_parts_) add_other_parts(name, words, visit_keys);
}

// Adds the keys of the other parts, unless an earlier part has the same key with the same default and help.
void KeyCollector::add_other_parts(std::string& name, const OneOf& words,
                                   const std::function<void(Visitor&)>& visit_keys) {
  const std::string chosen = name;
  for (const std::string& word : words.words) {
    if (word == chosen) continue;
    name = word;
    KeyCollector other(nullptr, true);
    visit_keys(other);
    for (ConfigKey& key : other.keys_) {
      key.path = prefix_ + key.path;
      const auto same = std::find_if(keys_.begin(), keys_.end(), [&](const ConfigKey& k) {
        return k.path == key.path && k.value == key.value && k.help == key.help;
      });
      if (same == keys_.end()) {
        key.condition = fmt::format("{}kind: {}", prefix_, word);
        keys_.push_back(std::move(key));
      } else if (!same->condition.empty()) {
        same->condition += " or " + word;
      }
    }
  }
  name = chosen;
}

void set_defaults(std::vector<ConfigKey>& keys, const std::vector<ConfigKey>& defaults) {
  for (ConfigKey& key : keys)
    for (const ConfigKey& other : defaults)
      if (other.path == key.path && other.value.index() == key.value.index()) key.standard = other.value;
}

std::string dump_config(const std::vector<ConfigKey>& keys) {
  std::string text;
  for (size_t i = 0; i < keys.size(); ++i) {
    const ConfigKey& key = keys[i];
    const bool holds_keys = i + 1 < keys.size() && keys[i + 1].path.starts_with(key.path + ".");
    if (key.is_section() && !holds_keys) continue;
    const auto depth = std::count(key.path.begin(), key.path.end(), '.');
    text += fmt::format("{:{}}{}:", "", 2 * depth, key.name());
    text += key.is_section() ? "\n" : fmt::format(" {}\n", key.text());
  }
  return text;
}

std::string explain_config(const std::vector<ConfigKey>& keys) {
  size_t key_width = 0, value_width = 0;
  std::vector<std::string> values;
  for (const ConfigKey& key : keys) {
    std::string value = key.text();
    if (key.changed()) value += fmt::format(" (default {})", text_of(key, key.standard));
    constexpr size_t most = 32;  // longer values do not widen the column
    if (value.size() <= most) value_width = std::max(value_width, value.size());
    if (!key.is_section()) key_width = std::max(key_width, key.path.size());
    values.push_back(std::move(value));
  }
  std::string text;
  for (size_t i = 0; i < keys.size(); ++i) {
    const ConfigKey& key = keys[i];
    if (key.is_section())
      text += fmt::format("{}{}: {}\n", i > 0 ? "\n" : "", key.path, key.help);
    else
      text += fmt::format("{} {:{}}  {:{}}  {} ({})\n", key.changed() ? '*' : ' ', key.path, key_width,
                          values[i], value_width, key.help, key.rule());
    for (const ConfigKey& k : key.item)
      text += fmt::format("  {:{}}  {:{}}  {} ({})\n", key.path + "[]." + k.path, key_width, k.text(),
                          value_width, k.help, k.rule());
  }
  return text;
}

std::string config_schema(const std::vector<ConfigKey>& keys) {
  Json schema{{"$schema", "https://json-schema.org/draft/2020-12/schema"},
              {"type", "object"},
              {"properties", Json::object()},
              {"additionalProperties", false}};
  for (const ConfigKey& key : keys) {
    Json* parent = &schema;
    for (size_t start = 0, dot; (dot = key.path.find('.', start)) != std::string::npos; start = dot + 1)
      parent = object_of((*parent)["properties"][key.path.substr(start, dot - start)]);
    Json& properties = (*parent)["properties"];
    if (!properties.contains(key.name())) properties[key.name()] = json(key);  // chosen part first
  }
  return schema.dump(2) + "\n";
}

std::string config_markdown(const std::vector<ConfigKey>& keys) {
  std::string text;
  const char* const head = "| key | default | value | |\n|---|---|---|---|\n";
  bool in_table = false;
  for (const ConfigKey& key : keys) {
    if (key.is_section()) {
      text += fmt::format("{}**{}**: {}\n\n", text.empty() ? "" : "\n", key.path, key.help);
    } else {
      if (!in_table) text += head;
      const auto add_row = [&](const std::string& path, const ConfigKey& k, const std::string& standard) {
        const std::string only = k.condition.empty() ? "" : fmt::format("; only with `{}`", k.condition);
        text += fmt::format("| `{}` | `{}` | {} | {} |\n", path, table_cell(standard), table_cell(k.rule()),
                            table_cell(k.help + only));
      };
      add_row(key.path, key, text_of(key, key.standard));
      for (const ConfigKey& k : key.item) add_row(key.path + "[]." + k.path, k, scalar(k.standard));
    }
    in_table = !key.is_section();
  }
  return text;
}

}  // namespace bonsai
