// The loop that all tasks share: steps, evaluations, checkpoints, logs, stopping.
#pragma once

#include <filesystem>

#include "trainers/checkpoint.h"

namespace bonsai {

// A run folder: config.yaml (effective), metrics.jsonl, checkpoints/{last,best}/checkpoint.safetensors.
struct RunFolder {
  std::filesystem::path path;
  std::filesystem::path config() const { return path / "config.yaml"; }
  std::filesystem::path metrics() const { return path / "metrics.jsonl"; }
  std::filesystem::path last() const { return path / "checkpoints/last/checkpoint.safetensors"; }
  std::filesystem::path best() const { return path / "checkpoints/best/checkpoint.safetensors"; }
  // What a resumed run goes on from: the last, or the best, where a kill before the first regular checkpoint left only
  // that; empty where there is none.
  std::filesystem::path newest() const;
};

struct RunSummary {
  Progress progress;
  Evaluation evaluation;  // the last
  int interrupted_by = 0;  // the signal
};

// Reads the data, a ConfigError where there is none that will do, and gives the model its vocabulary where the file names none (0).
void prepare_data(RunConfig& config, std::shared_ptr<Tokenizer> tokenizer = {});

// runs/NAME-N with the smallest N that is free.
std::filesystem::path free_run_folder(const std::string& name);

// A folder that exists is refused, unless to resume: then one that is no run is.
void check_run_folder(const RunFolder& folder, bool resume);

// Trains until max_steps, early stop or a signal, in a folder that passes check_run_folder. To resume, the
// run goes on from its last checkpoint, to the same bytes as one that never stopped. The data is prepared.
// Other data than it began with is refused, unless it is accepted: then the best loss starts anew.
RunSummary run_training(const RunConfig& config, const RunFolder& folder, bool resume, bool quiet,
                        bool accept_new_data = false);

}  // namespace bonsai
