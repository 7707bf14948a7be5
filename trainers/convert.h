// What earlier versions wrote, rewritten in the present format.
#pragma once

#include <filesystem>
#include <vector>

namespace bonsai {

// Rewrites a checkpoint of the first format, or a run folder's checkpoints and its config.yaml, in place;
// returns the files that changed. A file is replaced once all of the new one is on the disk. Error if a file
// is damaged or belongs to no run; ConfigError if there is none.
std::vector<std::filesystem::path> convert(const std::filesystem::path& path);

}  // namespace bonsai
