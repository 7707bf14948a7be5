#include "bonsai/framework/io/json.h"

#include "bonsai/framework/core/error.h"

namespace bonsai {

nlohmann::json parse_json(std::string_view text, std::string_view where) {
  check(text.size() <= kMaxJsonBytes, where, "its JSON has {} bytes; the limit is {}", text.size(),
        kMaxJsonBytes);
  const auto bounded = [&](int depth, nlohmann::json::parse_event_t, const nlohmann::json&) {
    check(depth < kMaxJsonDepth, where, "its JSON is nested more than {} levels deep", kMaxJsonDepth);
    return true;
  };
  return nlohmann::json::parse(text, bounded, /*allow_exceptions=*/false);
}

}  // namespace bonsai
