// Reads config.json of a Hugging Face directory. Errors name the file and the key.
#pragma once

#include <filesystem>
#include <string>

#include "bonsai/framework/core/error.h"
#include "bonsai/framework/core/quote.h"
#include "bonsai/framework/io/file.h"
#include "bonsai/framework/io/json.h"

namespace bonsai {

// The settings of a config.json. Every error names the file and the key.
class JsonConfig {
 public:
  explicit JsonConfig(const std::filesystem::path& path) : path_(path.string()) {
    check(std::filesystem::exists(path), path_,
          "does not exist; a Hugging Face directory must have a config.json");
    json_ = parse_json(read_file(path, kMaxJsonBytes), path_);
    check(json_.is_object(), path_, "is not a JSON object");
  }

  // The value of a key, or `otherwise` if it is missing or null. Throws if it has another type.
  template <class T>
  T get(const char* key, const T& otherwise) const {
    if (!json_.contains(key) || json_[key].is_null()) return otherwise;
    const nlohmann::json& value = json_[key];
    bool fits = value.is_number();
    if constexpr (std::is_same_v<T, bool>) fits = value.is_boolean();
    if constexpr (std::is_same_v<T, std::string>) fits = value.is_string();
    if constexpr (std::is_same_v<T, int64_t>) fits = value.is_number_integer();
    check(fits, path_, "{} has a value of the wrong type: {}", key, text(value));
    return value.get<T>();
  }

  // Whether the key has a value.
  bool has(const char* key) const { return json_.contains(key) && !json_[key].is_null(); }
  // A whole number of at least 1. Throws if it is missing and `otherwise` is less.
  int64_t count(const char* key, int64_t otherwise = -1) const {
    const int64_t n = get<int64_t>(key, otherwise);
    check(n >= 1, path_, "{} is missing or less than 1", key);
    return n;
  }
  // A count so small that products of two of them do not overflow int64.
  int64_t size(const char* key, int64_t otherwise = -1) const {
    const int64_t n = count(key, otherwise);
    check(n <= kLargestSize, path_, "{} is {}; the limit is {}", key, n, kLargestSize);
    return n;
  }

  // Throws unless the setting has the only value that Bonsai supports.
  template <class T>
  void only(const char* key, const T& value) const {
    const T found = get(key, value);
    check(found == value, path_, "{} is {}; Bonsai supports only {}", key, shown(found), value);
  }

  // The object under a key; empty if there is none.
  JsonConfig below(const char* key) const {
    JsonConfig inner = *this;
    inner.json_ = has(key) ? json_[key] : nlohmann::json::object();
    check(inner.json_.is_object(), path_, "{} has a value of the wrong type: {}", key, text(inner.json_));
    return inner;
  }

  // Throws unless n, the value of `whole`, is a multiple of m, that of `by`.
  void divisible(const char* whole, int64_t n, const char* by, int64_t m) const {
    check(n % m == 0, path_, "{} {} is not divisible by {} {}", whole, n, by, m);
  }

  const std::string& path() const { return path_; }

 private:
  static constexpr int64_t kLargestSize = (int64_t{1} << 31) - 1;
  static std::string text(const nlohmann::json& value) { return escaped(value.dump()); }
  template <class T>
  static const T& shown(const T& value) { return value; }
  static std::string shown(const std::string& value) { return escaped(value); }

  std::string path_;
  nlohmann::json json_;
};

}  // namespace bonsai
