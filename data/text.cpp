#include "bonsai/data/text.h"

#include <cmath>
#include <utility>

#include "bonsai/framework/core/error.h"
#include "bonsai/framework/io/file.h"

namespace bonsai {

std::string read_text(const std::filesystem::path& path) {
  std::string text = read_file(path, kMaxTextBytes);
  check(!text.empty(), "data", "{}: is empty; there is nothing to train on", path.string());
  const size_t zero = text.find('\0');
  check(zero == std::string::npos, "data",
        "{}: byte {} is zero, so this is not a text file; convert it to UTF-8", path.string(), zero);
  return text;
}

Split split_tokens(std::vector<int32_t> tokens, double validation_fraction) {
  check(validation_fraction >= 0 && validation_fraction < 1, "data",
        "validation_fraction must be at least 0 and below 1, got {}", validation_fraction);
  const auto held_back = std::llround(static_cast<double>(tokens.size()) * validation_fraction);
  Split split;
  split.validation.assign(tokens.end() - held_back, tokens.end());
  tokens.resize(tokens.size() - static_cast<size_t>(held_back));
  split.train = std::move(tokens);
  return split;
}

}  // namespace bonsai
