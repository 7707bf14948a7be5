// The program: bonsai COMMAND. Exit status 0 done, 1 failed while running, 2 wrong usage or config,
// 128 and the signal's number where one stopped a run (130: Ctrl-C). Results go to standard output,
// progress and errors to standard error.
#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <csignal>

#include "framework/config/yaml.h"
#include "tools/command.h"
#include "trainers/progress.h"

namespace {

void check_command(const CLI::App& program, const std::string& word) {
  std::vector<std::string> commands;
  for (const CLI::App* command : program.get_subcommands(nullptr)) commands.push_back(command->get_name());
  if (std::find(commands.begin(), commands.end(), word) != commands.end()) return;
  const std::string* meant = bonsai::nearest_word(word, commands);
  throw bonsai::ConfigError(fmt::format("there is no command '{}'; {}", word,
                                        meant ? "did you mean " + *meant + "?" : "see bonsai --help"));
}

// A file that is opened later would get the number of a standard stream that is closed, and its messages. A
// stream opened the wrong way round fails to write, as a closed one does.
void occupy_closed_streams() {
  for (const int stream : {0, 1, 2})
    if (fcntl(stream, F_GETFD) == -1 && open("/dev/null", stream == 0 ? O_WRONLY : O_RDONLY) != stream)
      std::abort();
}

int failed(int status, const std::string& message) {
  bonsai::say(message + "\n");
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  occupy_closed_streams();
  std::signal(SIGXFSZ, SIG_IGN);  // a file-size limit is then a failed write, as a full disk is
  std::signal(SIGPIPE, SIG_IGN);  // and so is a reader that went away
  CLI::App program{
      "Bonsai grows miniature transformers: trains them from YAML files and proves every gradient."};
  program.set_version_flag("--version", "bonsai " BONSAI_VERSION);
  program.require_subcommand(1);
  program.failure_message(
      [](const CLI::App*, const CLI::Error& e) { return fmt::format("{}; see --help\n", e.what()); });
  bonsai::add_train(program);
  bonsai::add_generate(program);
  bonsai::add_evaluate(program);
  bonsai::add_inspect(program);
  bonsai::add_gradcheck(program);
  bonsai::add_audit(program);
  bonsai::add_bench(program);
  bonsai::add_config(program);
  bonsai::add_doctor(program);
  try {
    if (argc > 1 && argv[1][0] != '-') check_command(program, argv[1]);
    program.parse(argc, argv);
    if (std::fflush(stdout) == 0) return 0;
    throw std::system_error(errno, std::generic_category());
  } catch (const CLI::RuntimeError& e) {  // a command chose its exit status
    return e.get_exit_code();
  } catch (const CLI::ParseError& e) {
    return program.exit(e) == 0 ? 0 : 2;
  } catch (const bonsai::ConfigError& e) {
    return failed(2, e.what());
  } catch (const std::bad_alloc&) {
    return failed(1, "there is not enough memory; make the model, the batch or the data smaller");
  } catch (const std::length_error&) {
    return failed(1, "a size is larger than memory can be; make the model, the batch or the data smaller");
  } catch (const std::filesystem::filesystem_error& e) {
    return failed(1, fmt::format("{}: {}", e.path1().string(), e.code().message()));
  } catch (const std::system_error& e) {               // of a print
    if (e.code() == std::errc::broken_pipe) return 1;  // whoever read has seen enough
    return failed(1, fmt::format("standard output could not be written: {}", e.code().message()));
  } catch (const std::exception& e) {
    return failed(1, e.what());
  }
}
