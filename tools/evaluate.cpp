// bonsai evaluate CHECKPOINT: computes the loss over all validation data, with each target once.
#include <fmt/format.h>

#include <algorithm>

#include "bonsai/framework/config/yaml.h"
#include "bonsai/tools/command.h"
#include "bonsai/trainers/loop.h"

namespace bonsai {
namespace {

namespace fs = std::filesystem;

bool is_below(const fs::path& path, const fs::path& folder) {
  const fs::path below = fs::weakly_canonical(path), above = fs::weakly_canonical(folder);
  return std::mismatch(above.begin(), above.end(), below.begin(), below.end()).first == above.end();
}

// A downloaded checkpoint may name any file. A file outside the run's folder is opened only if the checkpoint
// records the identity of its data.
void check_data_file(const LoadedModel& model, const fs::path& folder, const fs::path& file) {
  if (file.empty()) return;
  if (!model.checkpoint.records_data() && !is_below(file, folder))
    throw ConfigError(
        fmt::format("{} names {}, which is not below {}; name the text to evaluate by --data FILE",
                    model.checkpoint.file().string(), file.string(), folder.string()));
  if (!fs::exists(file))
    throw ConfigError(fmt::format("{}: its data {} is not there; name the text to evaluate by --data FILE",
                                  model.checkpoint.file().string(), file.string()));
}

// Prepares the data of the run.
void prepare_own_data(const LoadedModel& model, const fs::path& path, RunConfig& config) {
  const Checkpoint& checkpoint = model.checkpoint;
  const fs::path named = fs::absolute(path), folder = fs::is_directory(named) ? named : named.parent_path();
  config.data->resolve(folder);
  check_data_file(model, folder, config.data->file());
  prepare_data(config, checkpoint.tokenizer());
  if (const std::string why = checkpoint.data_changes(*config.data); !why.empty())
    throw ConfigError(
        fmt::format("{}: its data is not what it was trained on: {}; --data FILE evaluates any text",
                    checkpoint.file().string(), why));
}

}  // namespace

void add_evaluate(CLI::App& program) {
  struct Arguments {
    std::string checkpoint, data;
    bool whole = false;
    Device device;
  };
  auto a = std::make_shared<Arguments>();
  CLI::App* command = program.add_subcommand("evaluate", "compute the validation loss of a trained model");
  command->add_option("checkpoint", a->checkpoint, "run folder or checkpoint")
      ->required()
      ->check(not_empty());
  CLI::Option* data =
      command
          ->add_option(
              "--data", a->data,
              "a text file; its end is evaluated, data.validation_fraction of it as in training")
          ->check(not_empty());
  command->add_flag("--whole", a->whole, "evaluate the whole file of --data, even if short")->needs(data);
  add_device(*command, a->device);
  command->callback([a] {
    LoadedModel model(a->checkpoint, a->device);
    RunConfig config = model.checkpoint.config();
    if (a->data.empty()) {
      prepare_own_data(model, a->checkpoint, config);
    } else {
      config.data->evaluate_file(a->data, a->whole);
      prepare_data(config, model.checkpoint.tokenizer());
    }
    check_memory(config, Use::evaluation);
    const Evaluation e = config.data->evaluate(*model.model, config.trainer.batch_size, 0);
    check(std::isfinite(e.loss), model.checkpoint.file().string(),
          "its loss is not finite; the model has diverged, use an earlier checkpoint");
    fmt::print("val_loss {:.6f}\n", e.loss);
    if (!std::isnan(e.exact_match)) fmt::print("exact_match {:.6f}\n", e.exact_match);
    if (const double floor = config.data->floor(); !std::isnan(floor)) fmt::print("floor {:.6f}\n", floor);
  });
}

}  // namespace bonsai
