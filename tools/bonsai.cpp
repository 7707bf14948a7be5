#include "bonsai/tools/bonsai.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <sstream>

#include "bonsai/framework/backend/backend.h"
#include "bonsai/framework/config/yaml.h"
#include "bonsai/framework/core/parallel.h"
#include "bonsai/framework/core/quote.h"
#include "bonsai/tools/command.h"
#include "bonsai/trainers/progress.h"

namespace {

// Throws ConfigError for the first word that is no known command or option, with a suggestion. CLI11 would
// take the value of an unknown option for an argument and report the wrong word.
void check_words(const CLI::App& program, const std::vector<std::string>& words) {
  const CLI::App* command = &program;
  std::string name = "bonsai";
  const auto refuse = [&](const std::string& what, const std::string& word, const std::string* meant) {
    const std::string hint = meant ? fmt::format("did you mean {}?", *meant) : "see " + name + " --help";
    throw bonsai::ConfigError(fmt::format("{} '{}'; {}", what, word, hint));
  };
  std::ptrdiff_t arguments = 0;
  for (size_t i = 0; i < words.size() && words[i] != "--"; ++i) {
    const std::string& word = words[i];
    if (word.size() > 1 && word[0] == '-') {
      const std::string option = word.substr(0, word.find('='));
      std::vector<std::string> names;
      for (const CLI::Option* o : command->get_options())
        for (const std::string& known : o->get_lnames()) names.push_back("--" + known);
      const CLI::Option* known = command->get_option_no_throw(option);
      if (!known) refuse(name + " has no option", option, bonsai::nearest_word(option, names));
      const bool value_follows = i + 1 < words.size() && !words[i + 1].starts_with('-');
      const bool takes_it = known->get_items_expected_min() > 0 ||
                            (known->get_items_expected_max() > 0 && value_follows);
      if (takes_it && option.size() == word.size()) ++i;
    } else if (const auto below = command->get_subcommands(nullptr); !below.empty()) {
      std::vector<std::string> names;
      for (const CLI::App* one : below) names.push_back(one->get_name());
      const auto at = std::find(names.begin(), names.end(), word);
      if (at == names.end()) refuse(name + " has no command", word, bonsai::nearest_word(word, names));
      command = below[static_cast<size_t>(at - names.begin())];
      name += " " + word;
    } else {
      const auto taken = command->get_options([](const CLI::Option* o) { return o->get_positional(); });
      if (++arguments > std::ssize(taken)) refuse(name + " has no use for", word, nullptr);
    }
  }
}

// Reports invalid environment variables as wrong usage, before a command or library code reads them.
void check_environment() {
  try {
    if (std::getenv("BONSAI_THREADS")) bonsai::threads();
    if (std::getenv("BONSAI_ISA") || std::getenv("BONSAI_BLAS")) bonsai::cpu_info();
  } catch (const bonsai::Error& e) {
    throw bonsai::ConfigError(e.what());
  }
}

// If a standard stream is closed, a file that is opened later would get its number and receive its output.
// Opens /dev/null in the wrong direction instead, so that reads and writes still fail.
void occupy_closed_streams() {
  for (const int stream : {0, 1, 2})
    if (fcntl(stream, F_GETFD) == -1 && open("/dev/null", stream == 0 ? O_WRONLY : O_RDONLY) != stream)
      std::abort();
}

// When it is loaded, OpenBLAS starts threads that each allocate a buffer; under a memory limit, they may
// retry forever. Bonsai does not use them, so under such a limit it restarts itself with one BLAS thread.
void restart_without_blas_threads(char** argv) {
  constexpr const char* kThreads = "OPENBLAS_NUM_THREADS";
  const char* threads = std::getenv(kThreads);
  if (threads && std::string_view(threads) == "1") return;
  bool limited = false;
  for (const auto resource : {RLIMIT_AS, RLIMIT_DATA})
    if (rlimit limit{}; getrlimit(resource, &limit) == 0) limited |= limit.rlim_cur != RLIM_INFINITY;
  // If this fails, the program continues unchanged.
  if (limited && setenv(kThreads, "1", 1) == 0) execv("/proc/self/exe", argv);
}

void add_commands(CLI::App& program) {
  using namespace bonsai;
  for (const auto add : {add_train, add_generate, add_evaluate, add_inspect, add_gradcheck, add_audit,
                         add_bench, add_config, add_convert, add_doctor, add_new, add_man, add_completion})
    add(program);
}

// Prints a message, with control characters escaped because it may quote files or options; returns `status`.
int failed(int status, const std::string& message) {
  constexpr size_t kLongestLine = 10000;
  std::istringstream lines(message);
  for (std::string line; std::getline(lines, line);) bonsai::say(bonsai::escaped(line, kLongestLine) + "\n");
  return status;
}

}  // namespace

int bonsai::bonsai_main(int argc, char** argv, void (*register_parts)()) {
  restart_without_blas_threads(argv);
  occupy_closed_streams();
  std::signal(SIGXFSZ, SIG_IGN);  // exceeding a file-size limit is then a failed write
  std::signal(SIGPIPE, SIG_IGN);  // and so is a closed pipe
  CLI::App program{
      "Bonsai grows miniature transformers: trains them from YAML files and proves every gradient."};
  program.set_version_flag("--version", "bonsai " BONSAI_VERSION);
  program.footer(
      "Exit status: 0 done, 1 failed while running, 2 wrong usage or config, 128 and the number of a signal "
      "that stopped a run.");
  program.require_subcommand(1);
  program.option_defaults()->always_capture_default();  // shows defaults in the help
  program.parse_complete_callback(check_environment);   // runs before the command's callback
  program.failure_message(
      [](const CLI::App*, const CLI::Error& e) { return fmt::format("{}; see --help\n", e.what()); });
  try {
    if (register_parts) register_parts();
    add_commands(program);
    check_words(program, {argv + 1, argv + argc});
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
  } catch (const std::system_error& e) {               // from writing to standard output
    if (e.code() == std::errc::broken_pipe) return 1;  // the reader has closed the pipe
    return failed(1, fmt::format("standard output could not be written: {}", e.code().message()));
  } catch (const std::exception& e) {
    return failed(1, e.what());
  }
}
