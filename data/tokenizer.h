// Text to token ids and back. A checkpoint contains the tokenizer of its model as a string, so that the two
// cannot get out of step.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bonsai/framework/core/error.h"

namespace bonsai {

// Thrown for text that has no ids from byte `byte` on. Its message quotes the text.
class UnknownCharacter : public Error {
 public:
  UnknownCharacter(size_t byte, const std::string& message) : Error(message), byte(byte) {}
  size_t byte;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual int64_t vocab_size() const = 0;
  // decode(encode(text)) equals text, byte for byte. Throws UnknownCharacter.
  virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  virtual std::string decode(std::span<const int32_t> ids) const = 0;
  virtual std::string serialise() const = 0;  // JSON whose "kind" names the class

  static std::unique_ptr<Tokenizer> from_serialised(std::string_view json);
};

// One id per character, a Unicode code point in UTF-8; ids are in the order of code points. A byte that is
// not part of valid UTF-8 is a character of its own, U+DC00 + byte as in Python's surrogateescape (PEP 383),
// so that text in other encodings can be used for training, too, and is decoded unchanged.
class CharTokenizer final : public Tokenizer {
 public:
  explicit CharTokenizer(std::string_view text);             // has the characters of the text
  explicit CharTokenizer(std::vector<char32_t> characters);  // ascending

  int64_t vocab_size() const override { return static_cast<int64_t>(characters_.size()); }
  std::vector<int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const int32_t> ids) const override;
  std::string serialise() const override;

 private:
  std::vector<char32_t> characters_;
};

// Throws an Error with value and position if an id is outside of [0, vocab_size) and not `ignored`, the value
// of ignored targets. `what` names the ids: "the train split".
void check_ids(std::string_view what, std::span<const int32_t> ids, int64_t vocab_size,
               std::optional<int32_t> ignored = {});

}  // namespace bonsai
