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

#include "bonsai/framework/config/registry.h"
#include "bonsai/framework/core/error.h"
#include "bonsai/framework/io/json.h"

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
  virtual std::string serialise() const = 0;  // JSON whose "kind" is the name that it is registered by

  static std::unique_ptr<Tokenizer> from_serialised(std::string_view json);
};

// What a tokenizer is made from: the text that a model learns from, or what serialise() gave.
struct TokenizerSource {
  std::string_view text = {};
  const nlohmann::json* stored = nullptr;
};

void register_data_parts();  // written by CMake

// A tokenizer's class is made from (source, keys).
struct TokenizerKind {
  static constexpr const char *name = "tokenizer", *standard = "char";
  using Make = std::unique_ptr<Tokenizer>(const TokenizerSource& source);
  static void register_all() { register_data_parts(); }
};

// Throws an Error with value and position if an id is outside of [0, vocab_size) and not `ignored`, the value
// of ignored targets. `what` names the ids: "the train split".
void check_ids(std::string_view what, std::span<const int32_t> ids, int64_t vocab_size,
               std::optional<int32_t> ignored = {});

}  // namespace bonsai
