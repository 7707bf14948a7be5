// The complete state of a run in one safetensors file, from which it can be resumed exactly.
#pragma once

#include <filesystem>
#include <set>

#include "bonsai/trainers/trainer.h"

namespace bonsai {

// The first part of its last step that a stopped run has not finished. The parts run from last to first.
enum class Pending { nothing, full_evaluation, sample, evaluation };

struct Progress {
  int64_t step = 0;  // number of finished steps
  double best_loss = INFINITY;
  int64_t evaluations_without_better = 0;
  Pending pending = Pending::nothing;
};

// The "format" in the metadata. `bonsai convert` rewrites files of the first format, in which some keys had
// other names.
inline const std::string kCheckpointFormat = "bonsai checkpoint 2", kFirstFormat = "bonsai checkpoint 1";

// Writes a temporary file, syncs and renames it, so that a kill leaves either the old or the new file.
void save_checkpoint(const std::filesystem::path& file, Trainer& trainer, const Progress& progress);

// The "checksum" in the metadata of a checkpoint with these tensors and this other metadata.
std::string checkpoint_checksum(const std::map<std::string, Tensor>& tensors,
                                const std::map<std::string, std::string>& metadata);

// Throws Error if the checksum in the metadata differs, which means that the file called `file` is damaged.
void check_checksum(const std::string& file, const std::map<std::string, Tensor>& tensors,
                    const std::map<std::string, std::string>& metadata);

// Whether a file is a checkpoint, damaged or not, rather than a text. A safetensors file begins with the
// length of its header, whose eight bytes include a zero; a text file has no zero byte.
bool is_checkpoint_file(const std::filesystem::path& path);

// A checkpoint that was read and checked.
class Checkpoint {
 public:
  // Reads a file, a folder with checkpoint.safetensors, or the last checkpoint of a run folder. Throws Error
  // if anything is missing or damaged, ConfigError if there is no checkpoint.
  explicit Checkpoint(const std::filesystem::path& path);

  const std::filesystem::path& file() const { return path_; }
  const RunConfig& config() const { return config_; }  // its task is not prepared
  std::shared_ptr<Tokenizer> tokenizer() const { return tokenizer_; }
  const Progress& progress() const { return progress_; }
  // Whether the file has the identity of the training data, which older files do not have.
  bool records_data() const { return !data_.empty(); }
  // Describes how the data of this prepared task differs from the data of the run. Empty if it is the same or
  // if the file does not record it.
  std::string data_changes(const Task& task) const;

  // Settings for the root of a model of config(). A parameter that the file does not have throws Error before
  // its memory is allocated, because a config may claim any size. The checkpoint must outlive the building.
  Build build(Device device = {}) const;

  // Throws Error, without changing anything, if the file belongs to another model.
  void load_model(Model& model) const;
  void load(Trainer& trainer) const;  // loads weights and optimizer state

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
