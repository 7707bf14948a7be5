#include "bonsai/data/tokenizer/char.h"

#include <algorithm>
#include <bit>
#include <set>
#include <utility>

#include "bonsai/framework/core/error.h"

namespace bonsai {
namespace {

constexpr const char* kWhere = "tokenizer";
constexpr char32_t kEscape = 0xDC00;  // + byte; valid UTF-8 does not encode these code points

bool is_surrogate(char32_t c) { return c >= 0xD800 && c <= 0xDFFF; }
bool is_escape(char32_t c) { return c >= kEscape + 0x80 && c <= kEscape + 0xFF; }

// Removes the first character. Overlong forms, surrogates and code points above U+10FFFF are invalid.
char32_t next_character(std::string_view& text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  const auto ones = static_cast<size_t>(std::countl_one(first));
  const size_t length = ones == 0 ? 1 : ones == 1 || ones > 4 ? 0 : ones;
  constexpr char32_t kMin[] = {0, 0, 0x80, 0x800, 0x10000};
  char32_t c = length == 1 ? first : first & (0x7F >> length);
  bool valid = length > 0 && length <= text.size();
  for (size_t i = 1; valid && i < length; ++i) {
    valid = (byte(i) & 0xC0) == 0x80;
    c = c << 6 | (byte(i) & 0x3F);
  }
  valid = valid && c >= kMin[length] && c <= 0x10FFFF && !is_surrogate(c);
  text.remove_prefix(valid ? length : 1);
  return valid ? c : kEscape + first;
}

void append(std::string& text, char32_t c) {
  const auto put = [&](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  const auto put_rest = [&](int shift) { put(0x80 | ((c >> shift) & 0x3F)); };
  if (c < 0x80) return put(c);
  if (is_escape(c)) return put(c - kEscape);
  if (c < 0x800) {
    put(0xC0 | c >> 6);
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12);
    put_rest(6);
  } else {
    put(0xF0 | c >> 18);
    put_rest(12);
    put_rest(6);
  }
  put_rest(0);
}

std::string describe(char32_t c) {
  if (is_escape(c)) return fmt::format("the byte 0x{:02X}, which is not valid UTF-8,", c - kEscape);
  const std::string name = fmt::format("U+{:04X}", static_cast<uint32_t>(c));
  if (c < 0x20 || (c >= 0x7F && c < 0xA0)) return "the character " + name;
  std::string text;
  append(text, c);
  return fmt::format("the character '{}' ({})", text, name);
}

std::vector<char32_t> characters_of(std::string_view text) {
  std::set<char32_t> all;
  while (!text.empty()) all.insert(next_character(text));
  return {all.begin(), all.end()};
}

std::vector<char32_t> stored_characters(const nlohmann::json& json) {
  check(json.contains("characters") && json["characters"].is_array(), kWhere,
        "the stored tokenizer of kind char has no array \"characters\"");
  std::vector<char32_t> characters;
  for (const auto& c : json["characters"]) {
    check(c.is_number_unsigned() && c.get<uint64_t>() <= 0x10FFFF, kWhere,
          "entry {} of the stored characters is not a code point", characters.size());
    characters.push_back(c.get<char32_t>());
  }
  return characters;
}

}  // namespace

CharTokenizer::CharTokenizer(std::string_view text) : CharTokenizer(characters_of(text)) {}

CharTokenizer::CharTokenizer(const TokenizerSource& source, NoKeys)
    : CharTokenizer(source.stored ? stored_characters(*source.stored) : characters_of(source.text)) {}

CharTokenizer::CharTokenizer(std::vector<char32_t> characters) : characters_(std::move(characters)) {
  check(!characters_.empty(), kWhere, "needs at least one character, got none");
  for (size_t i = 0; i < characters_.size(); ++i) {
    const char32_t c = characters_[i];
    check(c <= 0x10FFFF && (!is_surrogate(c) || is_escape(c)), kWhere, "character {}: U+{:04X} is not one", i,
          static_cast<uint32_t>(c));
    check(i == 0 || characters_[i - 1] < c, kWhere, "characters {} and {} are not in ascending order", i - 1,
          i);
  }
}

std::vector<int32_t> CharTokenizer::encode(std::string_view text) const {
  std::vector<int32_t> ids;
  ids.reserve(text.size());
  for (std::string_view rest = text; !rest.empty();) {
    const size_t at = text.size() - rest.size();
    const char32_t c = next_character(rest);
    const auto found = std::lower_bound(characters_.begin(), characters_.end(), c);
    if (found == characters_.end() || *found != c)
      throw UnknownCharacter(
          at, fmt::format("[{}] {} at byte {} is not one of the {} characters this tokenizer was built from",
                          kWhere, describe(c), at, characters_.size()));
    ids.push_back(static_cast<int32_t>(found - characters_.begin()));
  }
  return ids;
}

std::string CharTokenizer::decode(std::span<const int32_t> ids) const {
  check_ids("ids to decode", ids, vocab_size());
  std::string text;
  for (const int32_t id : ids) append(text, characters_[static_cast<size_t>(id)]);
  return text;
}

std::string CharTokenizer::serialise() const {
  return nlohmann::json{{"kind", "char"},
                        {"characters", std::vector<uint32_t>(characters_.begin(), characters_.end())}}
      .dump();
}

void register_char() { add_part<TokenizerKind, CharTokenizer>("char"); }

}  // namespace bonsai
