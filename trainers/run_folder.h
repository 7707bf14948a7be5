// The files of a run, and the rules for writing to them.
#pragma once

#include <filesystem>
#include <string>

namespace bonsai {

// A run folder: config.yaml (effective), metrics.jsonl, checkpoints/{last,best}/checkpoint.safetensors.
struct RunFolder {
  std::filesystem::path path;
  bool numbered = false;  // whether `path` stands for the first free one of path-1, path-2, ...

  std::filesystem::path config() const { return path / "config.yaml"; }
  std::filesystem::path metrics() const { return path / "metrics.jsonl"; }
  std::filesystem::path last() const { return path / "checkpoints/last/checkpoint.safetensors"; }
  std::filesystem::path best() const { return path / "checkpoints/best/checkpoint.safetensors"; }
  // The checkpoint to resume from: the last one, or the best one if the run was killed before its first
  // regular checkpoint. Empty if there is none.
  std::filesystem::path newest() const;
};

// The first line of a run's config.yaml, by which it is recognised.
inline const std::string kWrittenByTrain =
    "# What this run uses, defaults included. Written by bonsai train.\n";

// Whether the folder holds a run: a checkpoint, or a config.yaml that begins with that line.
bool is_run(const RunFolder& folder);

// Throws ConfigError if a run may not write to the folder. A new run needs a folder that does not exist. A
// resumed run needs a run folder whose files are not links or special files.
void check_run_folder(const RunFolder& folder, bool resume);

// Creates the folder of a new run, or checks the folder of a resumed one. If several processes claim the same
// folder, only one succeeds; if they claim a numbered folder, each gets its own.
RunFolder claim(const RunFolder& folder, bool resume);

}  // namespace bonsai
