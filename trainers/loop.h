// The training loop of all tasks: steps, evaluations, checkpoints, logs, early stopping.
#pragma once

#include "bonsai/trainers/checkpoint.h"
#include "bonsai/trainers/run_folder.h"

namespace bonsai {

struct RunSummary {
  Progress progress;
  RunFolder folder;
  int interrupted_by = 0;  // number of the signal that stopped the run; 0 if none did
};

// Loads the data and sets `vocab_size` from the tokenizer if it is 0. Throws ConfigError if the data is
// missing or unusable.
void prepare_data(RunConfig& config, std::shared_ptr<Tokenizer> tokenizer = {});

// Trains until max_steps, early stopping or a signal. The data must be prepared, and the folder must pass
// check_run_folder. A resumed run continues from its last checkpoint and gives the same bytes as a run that
// never stopped. It throws ConfigError if the data has changed, unless accept_new_data is set, which resets
// the best loss.
RunSummary run_training(const RunConfig& config, const RunFolder& folder, bool resume, bool quiet,
                        bool accept_new_data = false);

}  // namespace bonsai
