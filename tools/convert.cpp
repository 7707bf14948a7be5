// bonsai convert PATH: rewrites a run or a checkpoint of an earlier version.
#include "bonsai/trainers/convert.h"

#include <fmt/format.h>

#include "bonsai/tools/command.h"

namespace bonsai {

void add_convert(CLI::App& program) {
  auto path = std::make_shared<std::string>();
  CLI::App* command = program.add_subcommand(
      "convert", "rewrite a run or a checkpoint of an earlier version in the current format");
  command->add_option("path", *path, "run folder or checkpoint; its files are replaced")
      ->required()
      ->check(not_empty());
  command->callback([path] {
    for (const auto& file : convert(*path)) fmt::print("{}\n", file.string());
  });
}

}  // namespace bonsai
