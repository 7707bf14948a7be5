#include "bonsai/framework/core/error.h"

namespace bonsai {
namespace {
thread_local const std::string* current_path = nullptr;
}

PathScope::PathScope(const std::string& path) : previous_(current_path) { current_path = &path; }
PathScope::~PathScope() { current_path = previous_; }
const std::string* PathScope::current() { return current_path; }

void fail(std::string_view where, std::string_view message) {
  const bool inside = current_path && !current_path->empty();
  throw Error(inside ? fmt::format("[{}] {} (in {})", where, message, *current_path)
                     : fmt::format("[{}] {}", where, message));
}

}  // namespace bonsai
