// Functions shared by the commands. Each command is one file with one function that adds it to the program.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

#include "bonsai/trainers/checkpoint.h"
#include "bonsai/trainers/generate.h"

namespace bonsai {

void add_train(CLI::App& program);
void add_generate(CLI::App& program);
void add_evaluate(CLI::App& program);
void add_inspect(CLI::App& program);
void add_gradcheck(CLI::App& program);
void add_audit(CLI::App& program);
void add_bench(CLI::App& program);
void add_config(CLI::App& program);
void add_convert(CLI::App& program);
void add_doctor(CLI::App& program);
void add_new(CLI::App& program);
void add_man(CLI::App& program);
void add_completion(CLI::App& program);

// Validators of option values. Other values give a one-sentence error and exit status 2.
CLI::Validator whole_number(int64_t least);
CLI::Validator number(const Range& range);
CLI::Validator not_empty();
CLI::Validator device_name();

// Arguments of a command with a config: CONFIG [--set key=value]... [--unset key]... [--device D] [--threads
// N]
struct ConfigArguments {
  std::string path, device;
  std::vector<std::string> settings, removed;
  int64_t threads = -1;

  CLI::Option* add_to(CLI::App& command);  // returns the option CONFIG, which is required
  // Data paths in the file are relative to its folder, those of --set to the current folder.
  RunConfig load() const;
};

constexpr int64_t kStandInVocabulary = 65;  // vocabulary size if neither the config nor the data gives it

enum class Use { training, evaluation };  // an evaluation needs the weights and one layer's activations

// Throws ConfigError if memory is too small for the model (in training, also for gradients and optimizer
// state) and a batch. ConfigArguments::load calls it before the data is read; if the vocabulary size is not
// known yet, its part is not counted.
void check_memory(const RunConfig& config, Use use = Use::training);

// For commands that need only the vocabulary size. Prepares the data; if its file is missing, keeps the
// config's vocab_size or sets kStandInVocabulary.
void prepare_data_or_vocabulary(RunConfig& config);

// Adds --device cpu, cuda or cuda:N for commands that read a checkpoint. The default is the CPU.
CLI::Option* add_device(CLI::App& command, Device& device);

// A model from a checkpoint, in the checkpoint's own dtype.
struct LoadedModel {
  explicit LoadedModel(const std::string& path, Device device = {});
  Checkpoint checkpoint;
  Module root;
  std::unique_ptr<Model> model;
};

// Returns the prompt of the text of an option. Throws ConfigError with the option's name if the text has
// unknown characters, is no prompt of the task, or is a source longer than block_size.
Batch prompt_of(const LoadedModel& model, const std::string& option, const std::string& text);
// Returns the batch's only row and the generated tokens: at most `count`, and at most the task's
// answer_length.
std::vector<int32_t> written_by(LoadedModel& model, const Batch& batch, int64_t count,
                                const GenerateOptions& options);

}  // namespace bonsai
