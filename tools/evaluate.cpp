// bonsai evaluate CHECKPOINT: the loss over all validation data, each target once.
#include <fmt/format.h>

#include "framework/config/yaml.h"
#include "tools/command.h"
#include "trainers/loop.h"

namespace bonsai {

void add_evaluate(CLI::App& program) {
  struct Arguments {
    std::string checkpoint, data;
    Device device;
  };
  auto a = std::make_shared<Arguments>();
  CLI::App* command = program.add_subcommand("evaluate", "validation loss of a trained model");
  command->add_option("checkpoint", a->checkpoint, "run folder or checkpoint")->required()->check(not_empty());
  command->add_option("--data", a->data, "another text file; the end of it, as in training, is evaluated")->check(not_empty());
  add_device(*command, a->device);
  command->callback([a] {
    LoadedModel model(a->checkpoint, a->device);
    RunConfig config = model.checkpoint.config();
    if (!a->data.empty()) {
      if (config.task != "language_model")
        throw ConfigError(fmt::format("--data: a model of the task {} reads no text file", config.task));
      ConfigFile file = ConfigFile::from_text("task: language_model\n", "--data");
      file.set("data.source=file");
      file.set("data.path=" + std::filesystem::absolute(a->data).string());
      config.data = file.load<RunConfig>().data;
    }
    prepare_data(config, model.checkpoint.tokenizer());
    const Evaluation e = config.data->evaluate(model.decoder, config.trainer.batch_size, 0);
    check(std::isfinite(e.loss), model.checkpoint.file().string(),
          "its loss is not finite; the model has diverged, use an earlier checkpoint");
    fmt::print("val_loss {:.6f}\n", e.loss);
    if (!std::isnan(e.exact_match)) fmt::print("exact_match {:.6f}\n", e.exact_match);
    if (const double floor = config.data->floor(); !std::isnan(floor)) fmt::print("floor {:.6f}\n", floor);
  });
}

}  // namespace bonsai
