// Character tokenizer.
#pragma once

#include "bonsai/data/tokenizer/tokenizer.h"

namespace bonsai {

// One id per character, a Unicode code point in UTF-8; ids are in the order of code points. A byte that is
// not part of valid UTF-8 is a character of its own, U+DC00 + byte as in Python's surrogateescape (PEP 383),
// so that text in other encodings can be used for training, too, and is decoded unchanged.
class CharTokenizer final : public Tokenizer {
 public:
  explicit CharTokenizer(std::string_view text);             // has the characters of the text
  explicit CharTokenizer(std::vector<char32_t> characters);  // ascending
  CharTokenizer(const TokenizerSource& source, NoKeys);

  int64_t vocab_size() const override { return static_cast<int64_t>(characters_.size()); }
  std::vector<int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const int32_t> ids) const override;
  std::string serialise() const override;

 private:
  std::vector<char32_t> characters_;
};

}  // namespace bonsai
