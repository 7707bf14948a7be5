// Text files, and the cut between what is trained on and what is held back.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace bonsai {

constexpr uint64_t kMaxTextBytes = uint64_t{4} << 30;

// All of the file. An Error where it is missing, a directory, empty, or longer than that, or holds a zero byte (binary data,
// UTF-16).
std::string read_text(const std::filesystem::path& path);

struct Split {
  std::vector<int32_t> train, validation;
};
// The last validation_fraction, in [0, 1), of the tokens (to the nearest token) is for validation, the rest
// trains. Whether a part is long enough is asked where the block size is known: see Batcher.
Split split_tokens(std::vector<int32_t> tokens, double validation_fraction);

}  // namespace bonsai
