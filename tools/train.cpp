// bonsai train CONFIG: trains, or goes on with a run.
#include <fmt/format.h>

#include "framework/config/yaml.h"
#include "tools/command.h"
#include "trainers/loop.h"

namespace bonsai {

void add_train(CLI::App& program) {
  struct Arguments : ConfigArguments {
    std::string out;
    bool resume = false, quiet = false, accept_new_data = false;
  };
  auto a = std::make_shared<Arguments>();
  CLI::App* command = program.add_subcommand("train", "train a model from a YAML file");
  a->add_to(*command);
  command->add_option("--out", a->out, "run folder; runs/NAME-N where it is not given")->check(not_empty());
  command->add_flag("--resume", a->resume, "go on from the last checkpoint of --out");
  command->add_flag("--accept-new-data", a->accept_new_data,
                    "go on although the data has changed since the run began; the best loss starts anew");
  command->add_flag("--quiet", a->quiet, "no progress on standard error");
  command->callback([a] {
    if (a->resume && a->out.empty()) throw ConfigError("--resume needs --out, the run folder to go on with");
    RunConfig config = a->load();
    const RunFolder folder{a->out.empty() ? free_run_folder(std::filesystem::path(a->path).stem().string())
                                          : std::filesystem::path(a->out)};
    check_run_folder(folder, a->resume);  // before the data is read or made
    const std::filesystem::path from = a->resume ? folder.newest() : "";
    prepare_data(config, from.empty() ? nullptr : Checkpoint(from).tokenizer());
    const RunSummary summary = run_training(config, folder, a->resume, a->quiet, a->accept_new_data);
    fmt::print("{}\n", folder.path.string());
    if (summary.interrupted_by) throw CLI::RuntimeError(128 + summary.interrupted_by);
  });
}

}  // namespace bonsai
