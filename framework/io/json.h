// JSON that others wrote: its size and depth are bounded while it is read, so that it fills neither memory nor the stack.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace bonsai {

constexpr uint64_t kMaxJsonBytes = 16 << 20;
constexpr int kMaxJsonDepth = 64;

// The value in `text`, discarded() if it is not JSON. Longer or deeper than the limits is an Error of `where`.
nlohmann::json parse_json(std::string_view text, std::string_view where);

}  // namespace bonsai
