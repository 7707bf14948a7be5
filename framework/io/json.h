// Parses untrusted JSON with limits on its size and depth, so that it exhausts neither memory nor the stack.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace bonsai {

constexpr uint64_t kMaxJsonBytes = 16 << 20;
constexpr int kMaxJsonDepth = 64;

// Parses `text`; the result is discarded() if it is not JSON. Throws an Error in the name of `where` if it
// exceeds a limit.
nlohmann::json parse_json(std::string_view text, std::string_view where);

}  // namespace bonsai
