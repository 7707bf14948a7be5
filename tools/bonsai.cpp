// The program: bonsai COMMAND. Exit status 0 done, 1 failed while running, 2 wrong usage or config,
// 130 interrupted. Results go to standard output, progress and errors to standard error.
#include <fmt/format.h>

#include "framework/config/yaml.h"
#include "tools/command.h"

int main(int argc, char** argv) {
  CLI::App program{"Bonsai grows miniature transformers: trains them from YAML files and proves every gradient."};
  program.set_version_flag("--version", "bonsai " BONSAI_VERSION);
  program.require_subcommand(1);
  bonsai::add_train(program);
  bonsai::add_generate(program);
  bonsai::add_evaluate(program);
  bonsai::add_inspect(program);
  bonsai::add_gradcheck(program);
  bonsai::add_bench(program);
  bonsai::add_config(program);
  bonsai::add_doctor(program);
  try {
    program.parse(argc, argv);
    return 0;
  } catch (const CLI::RuntimeError& e) {  // a command chose its exit status
    return e.get_exit_code();
  } catch (const CLI::ParseError& e) {
    return program.exit(e) == 0 ? 0 : 2;
  } catch (const bonsai::ConfigError& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 2;
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
}
