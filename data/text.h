// Text files, and the split into training and validation data.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace bonsai {

constexpr uint64_t kMaxTextBytes = uint64_t{4} << 30;

// Reads all of a file. Throws if it is missing, a directory, empty or larger than kMaxTextBytes, or if it
// contains a zero byte (binary data, UTF-16).
std::string read_text(const std::filesystem::path& path);

struct Split {
  std::vector<int32_t> train, validation;
};
// The last validation_fraction (in [0, 1)) of the tokens, rounded to the nearest token, is for validation,
// the rest for training. Batcher checks whether the parts are long enough for the block size.
Split split_tokens(std::vector<int32_t> tokens, double validation_fraction);

}  // namespace bonsai
