#include "bonsai/framework/core/quote.h"

#include <fmt/format.h>

namespace bonsai {
namespace {

// Length in bytes of the UTF-8 character at the start of `text`; 0 if there is none.
size_t character_bytes(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const size_t bytes = first < 0x80   ? 1
                       : first < 0xC2 ? 0
                       : first < 0xE0 ? 2
                       : first < 0xF0 ? 3
                       : first < 0xF5 ? 4
                                      : 0;
  if (bytes > text.size()) return 0;
  for (size_t i = 1; i < bytes; ++i)
    if ((text[i] & 0xC0) != 0x80) return 0;
  // The second byte reveals overlong forms, surrogates and code points above U+10FFFF.
  const auto second = bytes > 1 ? static_cast<unsigned char>(text[1]) : 0;
  const bool wrong = (first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) ||
                     (first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F);
  return wrong ? 0 : bytes;
}

char32_t code_point(std::string_view character) {
  auto c = static_cast<char32_t>(static_cast<unsigned char>(character[0]));
  if (character.size() > 1) c &= 0x7Fu >> character.size();
  for (const char byte : character.substr(1)) c = c << 6 | (static_cast<unsigned char>(byte) & 0x3F);
  return c;
}

// C0, DEL and C1; line and paragraph separators; bidirectional marks, embeddings, overrides and isolates.
bool is_control(char32_t c) {
  return c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0x061C || c == 0x200E || c == 0x200F ||
         (c >= 0x2028 && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
}

std::string escape(char32_t c) {
  switch (c) {
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      return fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
  }
}

std::string escape_all(std::string_view text, size_t most, std::string_view more) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t bytes = character_bytes(text.substr(i));
    if (i + std::max<size_t>(1, bytes) > most) return out + "...";
    const std::string_view character = text.substr(i, std::max<size_t>(1, bytes));
    if (bytes == 0)
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(character[0]));
    else if (const char32_t c = code_point(character); is_control(c))
      out += escape(c);
    else
      (more.find(character) == more.npos ? out : out += '\\') += character;
    i += character.size();
  }
  return out;
}

}  // namespace

size_t find_bad_byte(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto first = static_cast<unsigned char>(text[i]);
    const size_t bytes = character_bytes(text.substr(i));
    if (bytes == 0 || (first < 0x20 && first != '\t' && first != '\n' && first != '\r')) return i;
    i += bytes;
  }
  return std::string_view::npos;
}

std::string escaped(std::string_view text, size_t most) { return escape_all(text, most, ""); }
std::string in_quotes(std::string_view text, size_t most) {
  return '"' + escape_all(text, most, "\"\\") + '"';
}

}  // namespace bonsai
