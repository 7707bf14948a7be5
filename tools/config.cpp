// bonsai config check|explain|schema|keys: checks and explains a config file, and lists the available keys.
#include <fmt/format.h>

#include "bonsai/framework/config/print.h"
#include "bonsai/tools/command.h"

namespace bonsai {

void add_config(CLI::App& program) {
  CLI::App* command = program.add_subcommand("config", "check or explain a config file");
  command->require_subcommand(1);

  auto checked = std::make_shared<ConfigArguments>();
  CLI::App* check =
      command->add_subcommand("check", "print all errors of a file, or the config that a run would use");
  checked->add_to(*check);
  const auto keys_of = [](const ConfigArguments& arguments) {
    RunConfig config = arguments.load();
    prepare_data_or_vocabulary(config);
    return config_keys(config);
  };
  check->callback([=] { fmt::print("{}", dump_config(keys_of(*checked))); });

  auto explained = std::make_shared<ConfigArguments>();
  CLI::App* explain = command->add_subcommand("explain", "print every key with its value, range and meaning");
  explained->add_to(*explain);
  explain->callback([=] { fmt::print("{}", explain_config(keys_of(*explained))); });

  auto task = std::make_shared<std::string>("language_model");
  const auto defaults = [task] {
    RunConfig config;
    config.task = *task;
    return all_config_keys(config);
  };
  CLI::App* schema =
      command->add_subcommand("schema", "print a JSON Schema of a task's config files, for editors");
  schema->add_option("task", *task, "task of the config files")
      ->check(CLI::IsMember(registry<TaskKind>().names()));
  schema->callback([defaults] { fmt::print("{}", config_schema(defaults())); });

  CLI::App* keys = command->add_subcommand("keys", "print the keys as a Markdown table");
  keys->add_option("task", *task, "task of the config files")
      ->check(CLI::IsMember(registry<TaskKind>().names()));
  keys->callback([defaults] { fmt::print("{}", config_markdown(defaults())); });
}

}  // namespace bonsai
