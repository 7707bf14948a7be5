// The program: bonsai COMMAND. Exit status 0 done, 1 failed while running, 2 wrong usage or config,
// 130 interrupted. Results go to standard output, progress and errors to standard error.
#include <fmt/format.h>

#include <algorithm>
#include <csignal>

#include "framework/config/yaml.h"
#include "tools/command.h"

namespace {

void check_command(const CLI::App& program, const std::string& word) {
  std::vector<std::string> commands;
  for (const CLI::App* command : program.get_subcommands(nullptr)) commands.push_back(command->get_name());
  if (std::find(commands.begin(), commands.end(), word) != commands.end()) return;
  const std::string* meant = bonsai::nearest_word(word, commands);
  throw bonsai::ConfigError(fmt::format("there is no command '{}'; {}", word,
                                        meant ? "did you mean " + *meant + "?" : "see bonsai --help"));
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file-size limit is then a failed write, as a full disk is
  CLI::App program{"Bonsai grows miniature transformers: trains them from YAML files and proves every gradient."};
  program.set_version_flag("--version", "bonsai " BONSAI_VERSION);
  program.require_subcommand(1);
  program.failure_message([](const CLI::App*, const CLI::Error& e) { return fmt::format("{}; see --help\n", e.what()); });
  bonsai::add_train(program);
  bonsai::add_generate(program);
  bonsai::add_evaluate(program);
  bonsai::add_inspect(program);
  bonsai::add_gradcheck(program);
  bonsai::add_bench(program);
  bonsai::add_config(program);
  bonsai::add_doctor(program);
  try {
    if (argc > 1 && argv[1][0] != '-') check_command(program, argv[1]);
    program.parse(argc, argv);
    if (std::fflush(stdout) == 0) return 0;
    fmt::print(stderr, "standard output could not be written; is the disk full?\n");
    return 1;
  } catch (const CLI::RuntimeError& e) {  // a command chose its exit status
    return e.get_exit_code();
  } catch (const CLI::ParseError& e) {
    return program.exit(e) == 0 ? 0 : 2;
  } catch (const bonsai::ConfigError& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 2;
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "there is not enough memory; make the model, the batch or the data smaller\n");
    return 1;
  } catch (const std::length_error&) {
    fmt::print(stderr, "a size is larger than memory can be; make the model, the batch or the data smaller\n");
    return 1;
  } catch (const std::filesystem::filesystem_error& e) {
    fmt::print(stderr, "{}: {}\n", e.path1().string(), e.code().message());
    return 1;
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
}
