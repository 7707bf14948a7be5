// The loop that all tasks share: steps, evaluations, checkpoints, logs, stopping.
#pragma once

#include "bonsai/trainers/checkpoint.h"
#include "bonsai/trainers/run_folder.h"

namespace bonsai {

struct RunSummary {
  Progress progress;
  RunFolder folder;
  int interrupted_by = 0;  // the signal
};

// Reads the data, a ConfigError where there is none that will do, and gives the model its vocabulary where
// the file names none (0).
void prepare_data(RunConfig& config, std::shared_ptr<Tokenizer> tokenizer = {});

// Trains until max_steps, early stop or a signal, in a folder that passes check_run_folder. To resume, the
// run goes on from its last checkpoint, to the same bytes as one that never stopped. The data is prepared.
// Other data than it began with is refused, unless it is accepted: then the best loss starts anew.
RunSummary run_training(const RunConfig& config, const RunFolder& folder, bool resume, bool quiet,
                        bool accept_new_data = false);

}  // namespace bonsai
