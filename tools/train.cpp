// bonsai train CONFIG: trains a model. bonsai train --resume RUN: resumes a run.
#include <fmt/format.h>

#include "bonsai/framework/config/yaml.h"
#include "bonsai/tools/command.h"
#include "bonsai/trainers/loop.h"
#include "bonsai/trainers/progress.h"

namespace bonsai {
namespace {

struct Arguments : ConfigArguments {
  std::string out, run;
  bool resume = false, quiet = false, accept_new_data = false;
};

// Returns the folder to write to. A resumed run without CONFIG uses the config in this folder.
RunFolder folder_of(Arguments& a) {
  if (a.resume && a.run.empty())
    a.run = a.out;
  else if (a.resume && !a.out.empty())
    throw ConfigError("--out: --resume names the run folder already");
  if (a.resume && a.run.empty())
    throw ConfigError("--resume needs the run folder to go on with: --resume RUN");
  if (!a.resume && a.path.empty())
    throw ConfigError("name a config to train, or a run to go on with by --resume RUN");
  if (!a.resume && a.out.empty()) return {"runs" / std::filesystem::path(a.path).stem(), /*numbered=*/true};
  const RunFolder folder{a.resume ? a.run : a.out};
  if (a.path.empty()) a.path = folder.config().string();
  return folder;
}

// Quotes text so that a shell reads it as one word and a program does not read it as an option.
std::string word(std::string text) {
  if (text.starts_with('-')) text = "./" + text;
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=.,:/@%";
  if (text.find_first_not_of(kPlain) == text.npos) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

}  // namespace

void add_train(CLI::App& program) {
  auto a = std::make_shared<Arguments>();
  CLI::App* command = program.add_subcommand("train", "train a model from a YAML file, or resume a run");
  a->add_to(*command)->required(false);
  command->add_option("--out", a->out, "run folder; runs/NAME-N by default")->check(not_empty());
  CLI::Option* resume =
      command
          ->add_option("--resume", a->run,
                       "resume the run in this folder, with CONFIG or its own config; --set changes keys")
          ->type_name("RUN")
          ->expected(0, 1);
  command->add_flag("--accept-new-data", a->accept_new_data,
                    "resume although the data has changed since the run began; resets the best loss");
  command->add_flag("--quiet", a->quiet, "print no progress");
  command->callback([a, resume, &program] {
    a->resume = resume->count() > 0;
    const RunFolder folder = folder_of(*a);
    check_run_folder(folder, a->resume);  // before the data is read or generated
    RunConfig config = a->load();
    const std::filesystem::path from = a->resume ? folder.newest() : "";
    prepare_data(config, from.empty() ? nullptr : Checkpoint(from).tokenizer());
    check_memory(config);  // again, because the vocabulary size is known now
    const RunSummary summary = run_training(config, folder, a->resume, a->quiet, a->accept_new_data);
    const std::string path = summary.folder.path.string();
    fmt::print("{}\n", path);
    if (!summary.interrupted_by) return;
    if (!a->quiet) say(fmt::format("to go on: {} train --resume {}\n", word(program.get_name()), word(path)));
    throw CLI::RuntimeError(128 + summary.interrupted_by);
  });
}

}  // namespace bonsai
