#include "bonsai/data/tokenizer/tokenizer.h"

#include <fmt/format.h>

#include "bonsai/framework/core/quote.h"

namespace bonsai {

std::unique_ptr<Tokenizer> Tokenizer::from_serialised(std::string_view text) {
  constexpr const char* kWhere = "tokenizer";
  const auto json = parse_json(text, kWhere);
  check(json.is_object() && json.contains("kind") && json["kind"].is_string(), kWhere,
        "the stored tokenizer is not a JSON object with a \"kind\"");
  const std::string kind = json["kind"];
  const auto part = registry<TokenizerKind>().config(kind);
  check(part != nullptr, kWhere, "unknown kind {}; known: {}", in_quotes(kind),
        fmt::format("{}", fmt::join(registry<TokenizerKind>().names(), ", ")));
  return part->make(TokenizerSource{.stored = &json});
}

void check_ids(std::string_view what, std::span<const int32_t> ids, int64_t vocab_size,
               std::optional<int32_t> ignored) {
  for (size_t i = 0; i < ids.size(); ++i) {
    const int32_t id = ids[i];
    check((id >= 0 && id < vocab_size) || id == ignored, "data",
          "{}: id {} at position {} is outside the vocabulary of {}", what, id, i, vocab_size);
  }
}

}  // namespace bonsai
