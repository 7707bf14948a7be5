// Errors: one sentence that says what is wrong, where, and what to do.
//
//   check(x.rank() == 2, "embedding", "needs a matrix, got {}", table);
//   -> [embedding] needs a matrix, got token.weight f32(65) (in decoder.token)
#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <string_view>

namespace bonsai {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws Error("[where] message"), followed by "(in PATH)" if a layer is running.
[[noreturn]] void fail(std::string_view where, std::string_view message);

// The same with a message that is formatted.
template <class... Args>
[[noreturn]] void fail(std::string_view where, fmt::format_string<Args...> text, Args&&... args) {
  fail(where, std::string_view(fmt::vformat(text, fmt::make_format_args(args...))));
}

// Calls fail() unless `ok` is true.
template <class... Args>
void check(bool ok, std::string_view where, fmt::format_string<const Args&...> text,
           const Args&... args) {
  if (!ok) [[unlikely]]
    fail(where, std::string_view(fmt::vformat(text, fmt::make_format_args(args...))));
}

// Errors thrown on this thread during its lifetime name this layer. `path` must outlive it.
class PathScope {
 public:
  explicit PathScope(const std::string& path);
  ~PathScope();
  PathScope(const PathScope&) = delete;
  PathScope& operator=(const PathScope&) = delete;

  static const std::string* current();  // null outside of any layer

 private:
  const std::string* previous_;
};

}  // namespace bonsai
