// What the subcommands share. Each is one file with one function that adds it to the program.
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

// What an option takes: anything else is one sentence and exit status 2.
CLI::Validator whole_number(int64_t least);
CLI::Validator number(const Range& range);
CLI::Validator not_empty();
CLI::Validator device_name();

// A config file and what changes it: CONFIG [--set key=value]... [--unset key]... [--device D] [--threads N]
struct ConfigArguments {
  std::string path, device;
  std::vector<std::string> settings, removed;
  int64_t threads = -1;

  CLI::Option* add_to(CLI::App& command);  // CONFIG, which is required
  // Relative data paths stand beside the file, those of --set in the current folder.
  RunConfig load() const;
};

constexpr int64_t kStandInVocabulary = 65;  // where neither the config nor any data says it

enum class Use { training, evaluation };  // an evaluation needs the weights and one layer's activations

// Throws ConfigError if this machine cannot hold the model (in training also gradients and the optimizer's
// state) and a batch. ConfigArguments::load calls it before the data is read, when the vocabulary may be
// missing: then it counts the rest.
void check_memory(const RunConfig& config, Use use = Use::training);

// The data, or, where its file is missing, the config's vocabulary or that one: for commands that need no
// data.
void prepare_data_or_vocabulary(RunConfig& config);

// --device cpu, cuda or cuda:N, for commands that read a checkpoint; the CPU where it is not given.
CLI::Option* add_device(CLI::App& command, Device& device);

// A model from a checkpoint, in the checkpoint's own dtype.
struct LoadedModel {
  explicit LoadedModel(const std::string& path, Device device = {});
  Checkpoint checkpoint;
  Module root;
  std::unique_ptr<Model> model;
};

// What the model is given of an option's text. A ConfigError names the option if the text is not in its
// alphabet or no prompt of its task, or if a source is longer than block_size.
Batch prompt_of(const LoadedModel& model, const std::string& option, const std::string& text);
// The batch's only row and what the model writes after it: at most `count` tokens, and no more than the
// task's answer.
std::vector<int32_t> written_by(LoadedModel& model, const Batch& batch, int64_t count,
                                const GenerateOptions& options);

}  // namespace bonsai
