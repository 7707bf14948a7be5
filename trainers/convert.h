// Rewrites files of earlier versions in the current format.
#pragma once

#include <filesystem>
#include <vector>

namespace bonsai {

// Rewrites a checkpoint of the first format, or a run folder's checkpoints and config.yaml, in place, and
// returns the files that changed. A file is replaced once the new one is completely on disk. Throws Error if
// a file is damaged or not a checkpoint, ConfigError if there is no run folder or checkpoint.
std::vector<std::filesystem::path> convert(const std::filesystem::path& path);

}  // namespace bonsai
