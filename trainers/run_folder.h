// The files of a run, and who may write to them.
#pragma once

#include <filesystem>
#include <string>

namespace bonsai {

// A run folder: config.yaml (effective), metrics.jsonl, checkpoints/{last,best}/checkpoint.safetensors.
struct RunFolder {
  std::filesystem::path path;
  bool numbered = false;  // stands for the first of path-1, path-2, ... that is free

  std::filesystem::path config() const { return path / "config.yaml"; }
  std::filesystem::path metrics() const { return path / "metrics.jsonl"; }
  std::filesystem::path last() const { return path / "checkpoints/last/checkpoint.safetensors"; }
  std::filesystem::path best() const { return path / "checkpoints/best/checkpoint.safetensors"; }
  // What a resumed run goes on from: the last, or the best, where a kill before the first regular checkpoint
  // left only that; empty where there is none.
  std::filesystem::path newest() const;
};

// The first line of a run's config.yaml, which tells it from one that a person wrote.
inline const std::string kWrittenByTrain =
    "# What this run uses, defaults included. Written by bonsai train.\n";

// Whether the folder holds a run: a checkpoint, or a config.yaml that begins with that line.
bool is_run(const RunFolder& folder);

// ConfigError if a run may not write there: a new one to a folder that exists; a resumed one to a folder that
// is missing, is not a run, or has links or special files in the place of a run's own.
void check_run_folder(const RunFolder& folder, bool resume);

// Makes the folder of a new run. If several processes ask for one folder, one of them gets it; if they ask
// for a numbered one, each gets its own. A folder to resume is checked.
RunFolder claim(const RunFolder& folder, bool resume);

}  // namespace bonsai
