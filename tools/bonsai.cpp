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

// Refuses the first word that names no command or option, and says what was probably meant. CLI11 would take
// the value of an unknown option for an argument, and blame another word.
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

// A wrong variable is a wrong use of the program, also where only a layer would come upon it.
void check_environment() {
  try {
    if (std::getenv("BONSAI_THREADS")) bonsai::threads();
    if (std::getenv("BONSAI_ISA") || std::getenv("BONSAI_BLAS")) bonsai::cpu_info();
  } catch (const bonsai::Error& e) {
    throw bonsai::ConfigError(e.what());
  }
}

// A file that is opened later would get the number of a standard stream that is closed, and its messages. A
// stream opened the wrong way round fails to write, as a closed one does.
void occupy_closed_streams() {
  for (const int stream : {0, 1, 2})
    if (fcntl(stream, F_GETFD) == -1 && open("/dev/null", stream == 0 ? O_WRONLY : O_RDONLY) != stream)
      std::abort();
}

// While it is loaded, OpenBLAS starts threads that each allocate a buffer, and under a limit on memory they
// may try for ever. Bonsai has no use for them: under such a limit the program starts again without.
void restart_without_blas_threads(char** argv) {
  constexpr const char* kThreads = "OPENBLAS_NUM_THREADS";
  const char* threads = std::getenv(kThreads);
  if (threads && std::string_view(threads) == "1") return;
  bool limited = false;
  for (const auto resource : {RLIMIT_AS, RLIMIT_DATA})
    if (rlimit limit{}; getrlimit(resource, &limit) == 0) limited |= limit.rlim_cur != RLIM_INFINITY;
  // Goes on as it is where this fails.
  if (limited && setenv(kThreads, "1", 1) == 0) execv("/proc/self/exe", argv);
}

void add_commands(CLI::App& program) {
  using namespace bonsai;
  for (const auto add : {add_train, add_generate, add_evaluate, add_inspect, add_gradcheck, add_audit,
                         add_bench, add_config, add_convert, add_doctor, add_new, add_man, add_completion})
    add(program);
}

// A message may quote what a file or an option says: its lines are made fit for a terminal.
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
  std::signal(SIGXFSZ, SIG_IGN);  // a file-size limit is then a failed write, as a full disk is
  std::signal(SIGPIPE, SIG_IGN);  // and so is a reader that went away
  CLI::App program{
      "Bonsai grows miniature transformers: trains them from YAML files and proves every gradient."};
  program.set_version_flag("--version", "bonsai " BONSAI_VERSION);
  program.footer(
      "Exit status: 0 done, 1 failed while running, 2 wrong usage or config, 128 and the number of a signal "
      "that stopped a run.");
  program.require_subcommand(1);
  program.option_defaults()->always_capture_default();  // help shows them
  program.parse_complete_callback(check_environment);   // before the command's own
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
  } catch (const std::system_error& e) {               // of a print
    if (e.code() == std::errc::broken_pipe) return 1;  // whoever read has seen enough
    return failed(1, fmt::format("standard output could not be written: {}", e.code().message()));
  } catch (const std::exception& e) {
    return failed(1, e.what());
  }
}
