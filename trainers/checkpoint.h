// Everything a run needs to go on as if it had never stopped, in one safetensors file.
#pragma once

#include <filesystem>
#include <set>

#include "bonsai/trainers/trainer.h"

namespace bonsai {

// What a run that stopped has left to do of its last step, and what follows that.
enum class Pending { nothing, full_evaluation, sample, evaluation };

// Where the run stands.
struct Progress {
  int64_t step = 0;  // steps done
  double best_loss = INFINITY;
  int64_t evaluations_without_better = 0;
  Pending pending = Pending::nothing;
};

// The metadata's "format". `bonsai convert` rewrites files of the first format, which had other names for
// some keys.
inline const std::string kCheckpointFormat = "bonsai checkpoint 2", kFirstFormat = "bonsai checkpoint 1";

// Written to a temporary name, synced and renamed: a kill leaves this one or the one before.
void save_checkpoint(const std::filesystem::path& file, Trainer& trainer, const Progress& progress);

// What the metadata of a checkpoint with these tensors and this metadata has as its "checksum".
std::string checkpoint_checksum(const std::map<std::string, Tensor>& tensors,
                                const std::map<std::string, std::string>& metadata);

// Error if the metadata's checksum is another: the file of this name is damaged.
void check_checksum(const std::string& file, const std::map<std::string, Tensor>& tensors,
                    const std::map<std::string, std::string>& metadata);

// Whether a file is one, or a damaged one, by what it holds: one of its first eight bytes, the length of its
// header, is zero, as none of a config is.
bool is_checkpoint_file(const std::filesystem::path& path);

// A checkpoint that was read and found whole: an Error says what is missing or damaged.
class Checkpoint {
 public:
  // A file, a folder with checkpoint.safetensors, or a run folder (its last checkpoint).
  explicit Checkpoint(const std::filesystem::path& path);

  const std::filesystem::path& file() const { return path_; }
  const RunConfig& config() const { return config_; }  // its task is not prepared
  std::shared_ptr<Tokenizer> tokenizer() const { return tokenizer_; }
  const Progress& progress() const { return progress_; }
  // Whether it says what its run was trained on, which older files do not.
  bool records_data() const { return !data_.empty(); }
  // What of this prepared data is other than what the run was trained on, in words; empty where all is the
  // same, or nothing is recorded.
  std::string data_changes(const Task& task) const;

  // The root for a model of config(). The model is refused at its first parameter that the file does not
  // have, before memory is asked for it: a config may claim any size. This checkpoint outlives the building.
  Build build(Device device = {}) const;

  // A file of another model is an Error, and then nothing has changed.
  void load_model(Model& model) const;
  void load(Trainer& trainer) const;  // weights and the optimizer's state

 private:
  bool is_state_of(const std::string& name, const std::set<std::string>& parameters) const;
  const Tensor& tensor_for(const std::string& name, const Shape& shape) const;

  std::filesystem::path path_;
  RunConfig config_;
  std::shared_ptr<Tokenizer> tokenizer_;
  DataIdentity data_;
  Progress progress_;
  std::map<std::string, Tensor> tensors_;
};

}  // namespace bonsai
