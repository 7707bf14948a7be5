// Runs the program as a process with the given arguments. Returns its exit status, standard output and
// standard error.
#pragma once

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <nlohmann/json.hpp>
#include <thread>

#include "bonsai/tests/training.h"

namespace bonsai::test {

struct Outcome {
  int status = -1;  // the exit status; 128 + the signal that ended it
  std::string out, err;
};

class Program {
 public:
  Program() { write(folder / "tiny.yaml", kTinyRun); }

  Folder folder;  // the working directory of the program
  std::vector<std::pair<int, rlim_t>> limits;  // of the program, such as {RLIMIT_AS, bytes}
  std::string out_file = "stdout.txt", err_file = "stderr.txt";  // an empty name closes it

  pid_t start(const std::vector<std::string>& arguments) const {
    std::vector<std::string> words = {BONSAI_PROGRAM};
    words.insert(words.end(), arguments.begin(), arguments.end());
    const std::string out = (folder.path() / out_file).string(), err = (folder.path() / err_file).string();
    const pid_t child = ::fork();
    if (child != 0) return child;
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    for (const auto& [resource, most] : limits) {
      const rlimit limit{most, most};
      if (::setrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) ::_exit(126);
    }
    const int to = ::open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    const int errors = err_file.empty() ? -1 : ::open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (::chdir(folder.path().c_str()) == 0 && ::dup2(to, 1) >= 0
        && (err_file.empty() ? ::close(2) == 0 : ::dup2(errors, 2) >= 0))
      ::execv(argv[0], argv.data());
    ::_exit(126);
  }

  Outcome finish(pid_t child) const {
    int status = 0;
    ::waitpid(child, &status, 0);
    Outcome result{WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
                   {},
                   {}};
    for (const auto& [file, text] : {std::pair{out_file, &result.out}, std::pair{err_file, &result.err}})
      if (std::filesystem::is_regular_file(folder.path() / file)) *text = contents(folder.path() / file);
    return result;
  }

  // Waits until the condition holds. Returns false if the program ends before.
  bool wait(pid_t child, const std::function<bool()>& condition) const {
    siginfo_t ended = {};
    while (!condition()) {
      if (::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOHANG | WNOWAIT) != 0
          || ended.si_pid != 0)
        return condition();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }

  Outcome run(const std::vector<std::string>& arguments) const { return finish(start(arguments)); }

  // Trains a run for `steps` steps and returns its name.
  std::string trained(const std::string& name = "run", int steps = 4) const {
    const Outcome o = run({"train", "tiny.yaml", "--out", name, "--quiet", "--set",
                           "trainer.max_steps=" + std::to_string(steps)});
    EXPECT_EQ(o.status, 0) << o.err;
    return name;
  }
};

// Expects the exit status and an error message of one line that contains the words.
inline void expect_failure(const Outcome& o, int status, const std::vector<std::string>& words) {
  EXPECT_EQ(o.status, status) << o.err;
  for (const std::string& word : words)
    EXPECT_NE(o.err.find(word), std::string::npos) << word << " is not in: " << o.err;
  EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
}

}  // namespace bonsai::test
