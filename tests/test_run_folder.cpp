// Run folders, with the program run as a process: who may use a folder, what is written to it and through
// links in it, and how a run in it is resumed.
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include <map>
#include <set>

#include "bonsai/tests/program.h"
#include "bonsai/trainers/progress.h"

namespace bonsai::test {
namespace {

namespace fs = std::filesystem;

// B45: several runs start at the same time.
TEST(RunFolder, RunsThatBeginAtOnceHaveFoldersOfTheirOwn) {
  Program p;
  write(p.folder / "none.txt", "");
  fs::create_directories(p.folder / "runs");
  write(p.folder / "runs/tiny-2", "not a run");
  fs::create_symlink("nowhere", p.folder / "runs/tiny-3");
  constexpr int kRuns = 6;
  std::vector<pid_t> children;
  for (int i = 0; i < kRuns; ++i) {
    p.out_file = fmt::format("out{}", i), p.err_file = fmt::format("err{}", i);
    children.push_back(p.start({"train", "tiny.yaml", "--quiet", "--set", "trainer.max_steps=2", "--set",
                                "schedule.warmup_steps=2"}));
  }
  std::set<std::string> folders;
  for (int i = 0; i < kRuns; ++i) {
    p.out_file = fmt::format("out{}", i), p.err_file = fmt::format("err{}", i);
    const Outcome o = p.finish(children[static_cast<size_t>(i)]);
    EXPECT_EQ(o.status, 0) << o.err;
    folders.insert(o.out);
  }
  EXPECT_EQ(folders, (std::set<std::string>{"runs/tiny-1\n", "runs/tiny-4\n", "runs/tiny-5\n",
                                            "runs/tiny-6\n", "runs/tiny-7\n", "runs/tiny-8\n"}));
  for (const std::string& path : folders)
    EXPECT_EQ(Checkpoint(p.folder / path.substr(0, path.size() - 1)).progress().step, 2);
}

TEST(RunFolder, OfRunsThatAskForOneFolderAtOnceOneGetsIt) {
  Program p;
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    p.out_file = fmt::format("out{}", i), p.err_file = fmt::format("err{}", i);
    children.push_back(
        p.start({"train", "tiny.yaml", "--quiet", "--out", "a/b/", "--set", "trainer.max_steps=2", "--set",
                 "schedule.warmup_steps=2"}));
  }
  int won = 0;
  for (int i = 0; i < 4; ++i) {
    p.out_file = fmt::format("out{}", i), p.err_file = fmt::format("err{}", i);
    const Outcome o = p.finish(children[static_cast<size_t>(i)]);
    if (o.status == 0)
      ++won;
    else
      expect_failure(o, 2, {"a/b", " exists; go on with it by --resume"});
  }
  EXPECT_EQ(won, 1);
  EXPECT_EQ(Checkpoint(p.folder / "a/b").progress().step, 2);
}

// B59: config.yaml lists the values in use, and the step and the changes of each resume.
TEST(RunFolder, AResumeThatDoesNothingLeavesTheConfig) {
  const Program p;
  p.trained("run", 20);
  const RunFolder run{p.folder / "run"};
  const std::string before = contents(run.config());
  const auto resume = [&](const std::vector<std::string>& settings) {
    std::vector<std::string> words = {"train", "--resume", "run", "--quiet"};
    for (const std::string& setting : settings) words.insert(words.end(), {"--set", setting});
    const Outcome o = p.run(words);
    EXPECT_EQ(o.status, 0) << o.err;
    return contents(run.config());
  };
  EXPECT_EQ(resume({"trainer.max_steps=10", "schedule.learning_rate=0.5"}), before);
  EXPECT_EQ(resume({"trainer.early_stop=1", "trainer.max_steps=20"}), before) << "there is nothing left";
  const std::string first =
      "# Resumed after step 20: trainer.max_steps is 22, was 20; "
      "schedule.learning_rate is 0.5, was 0.01\n";
  const std::string longer = resume({"trainer.max_steps=22", "schedule.learning_rate=0.5"});
  EXPECT_NE(longer.find(first), std::string::npos) << longer;
  EXPECT_NE(longer.find("max_steps: 22\n"), std::string::npos) << longer;
  EXPECT_EQ(resume({}), longer);
  const std::string twice = resume({"trainer.max_steps=24"});
  EXPECT_NE(twice.find(first + "# Resumed after step 22: trainer.max_steps is 24, was 22\n"),
            std::string::npos)
      << twice;
  EXPECT_EQ(p.run({"config", "check", "run/config.yaml"}).status, 0);
}

// B60
TEST(RunFolder, ARunWithoutACheckpointSaysSo) {
  const Program p;
  p.trained();
  const RunFolder run{p.folder / "run"};
  for (const auto& gone : {run.last(), run.best(), run.path / "checkpoints"}) {
    fs::remove_all(run.last());
    fs::remove_all(run.best());
    fs::remove_all(gone);
    for (const std::string command : {"generate", "evaluate", "inspect"}) {
      const Outcome o = p.run({command, "run"});
      EXPECT_NE(o.status, 0);
      EXPECT_NE(o.err.find("[run] is a run that has no checkpoint yet"), std::string::npos) << o.err;
    }
  }
}

// Runs the command that the program printed after "to go on: " in a shell.
Outcome run_printed(const Program& p, const std::string& err, const std::string& more) {
  const std::string start = "to go on: ";
  const size_t at = err.find(start);
  if (at == err.npos) return {};
  const std::string command = err.substr(at + start.size(), err.find('\n', at) - at - start.size());
  const std::string in_folder = "cd '" + p.folder.path().string() + "' && " + command + " " + more;
  const int status = std::system((in_folder + " > printed.txt 2>&1").c_str());
  return {WEXITSTATUS(status), command, contents(p.folder / "printed.txt")};
}

// B64
TEST(RunFolder, TheCommandThatAnInterruptedRunPrintsGoesOnWithIt) {
  const Program p;
  for (const std::string name : {"run", "my run", "it's \"$HOME\"", "-x"}) {
    const RunFolder run{p.folder / name};
    const pid_t child =
        p.start({"train", "tiny.yaml", "--out=" + name, "--set", "trainer.max_steps=1000000"});
    ASSERT_TRUE(p.wait(child, [&] { return fs::exists(run.last()); }));
    ::kill(child, SIGINT);
    const Outcome stopped = p.finish(child);
    EXPECT_EQ(stopped.status, 130);
    const int64_t done = Checkpoint(run.path).progress().step;
    const Outcome o = run_printed(p, stopped.err, fmt::format("--set trainer.max_steps={}", done + 2));
    EXPECT_EQ(o.status, 0) << stopped.err << o.err;
    EXPECT_NE(o.err.find(fmt::format("going on after step {}\n  trainer.max_steps is {}", done, done + 2)),
              std::string::npos)
        << o.err;
    EXPECT_EQ(Checkpoint(run.path).progress().step, done + 2);
  }
}

TEST(RunFolder, ResumeTakesAllFromTheRunUnlessToldOtherwise) {
  const Program p;
  const auto settings = [](std::vector<std::string> words) {
    words.insert(words.end(),
                 {"--quiet", "--set", "schedule.learning_rate=0.02", "--set", "data.characters=3000"});
    return words;
  };
  EXPECT_EQ(p.run(settings({"train", "tiny.yaml", "--out", "whole"})).status, 0);
  const auto keys = [&](const std::string& name) {
    const std::string text = contents(RunFolder{p.folder / name}.config());
    return text.substr(text.find("\ntask:"));  // without the comments
  };
  const std::map<std::string, std::vector<std::string>> forms = {
      {"0", {"train", "--resume", "0"}},
      {"1", settings({"train", "tiny.yaml", "--resume", "1"})},
      {"2", settings({"train", "tiny.yaml", "--out", "2", "--resume"})},
      {"3", {"train", "--out", "3", "--resume"}}};
  for (const auto& [name, form] : forms) {
    const Outcome first =
        p.run(settings({"train", "tiny.yaml", "--out", name, "--set", "trainer.max_steps=7"}));
    EXPECT_EQ(first.status, 0) << first.err;
    std::vector<std::string> words = form;
    words.insert(words.end(), {"--set", "trainer.max_steps=20"});
    const Outcome o = p.run(words);
    EXPECT_EQ(o.status, 0) << o.err;
    EXPECT_EQ(o.out, name + "\n");
    EXPECT_EQ(Checkpoint(p.folder / name).progress().step, 20);
    EXPECT_EQ(keys(name), keys("whole"));
  }
  expect_failure(p.run({"train"}), 2, {"name a config to train, or a run to go on with by --resume RUN"});
  expect_failure(p.run({"train", "--resume", "whole", "--out", "other"}), 2,
                 {"--resume names the run folder already"});
  expect_failure(p.run({"train", "--resume", "none"}), 2, {"none does not exist"});
  expect_failure(p.run({"train", "--resume", "tiny.yaml"}), 2, {"tiny.yaml is no run folder"});
}

// B71: a link in an unpacked run folder leads out of it. Nothing is written there or in the run.
TEST(RunFolder, ResumingFollowsNoLinks) {
  const Program p;
  p.trained();
  const RunFolder run{p.folder / "run"};
  const auto refused = [&](const fs::path& place, const std::string& sentence) {
    const std::string config = contents(run.last());
    const Outcome o = p.run({"train", "--resume", "run", "--set", "trainer.max_steps=6"});
    expect_failure(o, 2, {place.lexically_relative(p.folder.path()).string() + sentence});
    EXPECT_EQ(contents(run.last()), config);
  };
  for (const fs::path& place : {run.metrics(), run.config(), run.last(), run.best(), run.last().parent_path(),
                                run.path / "checkpoints"}) {
    const fs::path victim = p.folder / "victim";
    fs::rename(place, victim);
    fs::create_symlink(victim, place);
    const std::string before = fs::is_directory(victim) ? "" : contents(victim);
    refused(place, " is a link");
    EXPECT_EQ(fs::is_directory(victim) ? "" : contents(victim), before);
    fs::remove(place);
    fs::rename(victim, place);
  }
  const std::string lines = contents(run.metrics());
  fs::remove(run.metrics());
  ASSERT_EQ(::mkfifo(run.metrics().c_str(), 0600), 0);
  refused(run.metrics(), " is something else");
  fs::remove(run.metrics());
  for (const std::string notes : {"my notes\nand more of them\n", "{\"name\": 1}\n"}) {
    write(run.metrics(), notes);
    refused(run.metrics(), " has no line of a run");
    EXPECT_EQ(contents(run.metrics()), notes);
  }
  write(run.metrics(), lines + std::string(200000, '[') + "\n");
  expect_failure(p.run({"train", "--resume", "run"}), 1, {"metrics.jsonl", "nested more than 64 levels"});
  write(run.metrics(), lines);
  EXPECT_EQ(p.run({"train", "--resume", "run", "--set", "trainer.max_steps=6"}).status, 0);
  EXPECT_TRUE(contents(run.metrics()).starts_with(lines));
}

// B79
TEST(RunFolder, AFolderThatIsRemovedOrRenamedMeanwhileIsSaid) {
  const Program p;
  for (const bool removed : {true, false})
    for (const std::string log : {"1", "100000000"}) {  // detected by a write, or between two steps
      const RunFolder run{p.folder / "run"};
      const pid_t child =
          p.start({"train", "tiny.yaml", "--out", "run", "--quiet", "--set", "trainer.max_steps=100000000",
                   "--set", "trainer.log_interval=" + log, "--set", "trainer.checkpoint_interval=0", "--set",
                   "trainer.eval_interval=0"});
      ASSERT_TRUE(p.wait(child, [&] { return fs::exists(run.metrics()); }));
      fs::rename(run.path, p.folder / "elsewhere");
      if (removed) fs::remove_all(p.folder / "elsewhere");
      const Outcome o = p.finish(child);
      expect_failure(o, 1, {"[train] run was removed or renamed while the run was writing to it"});
      EXPECT_FALSE(fs::exists(run.path));
      fs::remove_all(p.folder / "elsewhere");
    }
}

// B47: a signal does not wait for a long evaluation. The resumed run completes the evaluation.
TEST(RunFolder, TerminatedInALongEvaluationTheRunIsSaved) {
  const Program p;
  const RunFolder run{p.folder / "run"};
  const pid_t child = p.start({"train", "tiny.yaml", "--out", "run", "--quiet", "--set",
                               "trainer.eval_batches=0", "--set", "data.characters=2000000", "--set",
                               "data.validation_fraction=0.9", "--set", "trainer.max_steps=1", "--set",
                               "schedule.warmup_steps=1"});
  ASSERT_TRUE(p.wait(child, [&] { return fs::exists(run.metrics()) && fs::file_size(run.metrics()) > 0; }));
  ::kill(child, SIGTERM);
  const Outcome o = p.finish(child);
  EXPECT_EQ(o.status, 128 + SIGTERM) << o.err;
  EXPECT_EQ(Checkpoint(run.path).progress().step, 1);
  EXPECT_EQ(Checkpoint(run.path).progress().pending, Pending::evaluation);
}

// The user time of a process in hundredths of a second.
int64_t ticks_of(pid_t process) {
  std::istringstream stat(contents(fmt::format("/proc/{}/stat", process)));
  std::string field;
  for (int i = 0; i < 14; ++i) stat >> field;
  return std::stoll(field);
}

// Other commands have nothing to save, so signals have their default effect.
TEST(RunFolder, EvaluatingAndGeneratingEndAtASignal) {
  const Program p;
  EXPECT_EQ(p.run({"train", "tiny.yaml", "--out", "run", "--quiet", "--set", "data.characters=2000000",
                   "--set", "data.validation_fraction=0.9", "--set", "trainer.max_steps=0"})
                .status,
            0);
  for (const auto& words : std::vector<std::vector<std::string>>{
           {"evaluate", "run"}, {"generate", "run", "--max-tokens", "1000000"}}) {
    const pid_t child = p.start(words);
    ASSERT_TRUE(p.wait(child, [&] { return ticks_of(child) > 50; }));  // half a second of processor time
    ::kill(child, SIGTERM);
    EXPECT_EQ(p.finish(child).status, 128 + SIGTERM);
  }
}

// B49: while an object of this class exists, standard error is a terminal with `columns` columns.
class Terminal {
 public:
  explicit Terminal(int columns) {
    if (::openpty(&reader_, &writer_, nullptr, nullptr, nullptr) != 0) return;
    resize(columns);
    saved_ = ::dup(STDERR_FILENO);
    ::dup2(writer_, STDERR_FILENO);
  }
  ~Terminal() {
    if (!is_open()) return;
    ::dup2(saved_, STDERR_FILENO);
    for (const int file : {saved_, reader_, writer_}) ::close(file);
  }
  bool is_open() const { return writer_ >= 0; }
  void resize(int columns) const {
    const winsize size = {24, static_cast<unsigned short>(columns), 0, 0};
    EXPECT_EQ(::ioctl(writer_, TIOCSWINSZ, &size), 0);
  }
  std::string shown() const {
    char text[4096];
    const ssize_t got = ::read(reader_, text, sizeof text);
    return got > 0 ? std::string(text, static_cast<size_t>(got)) : "";
  }

 private:
  int reader_ = -1, writer_ = -1, saved_ = -1;
};

TEST(ProgressLine, IsCutToTheTerminalAlsoAfterAResize) {
  const std::string start = "\r\x1b[K", text = "step 1/1  loss 1.250 (floor 0.500)  ";
  std::vector<std::pair<size_t, std::string>> shown;
  {
    const Terminal terminal(30);
    if (!terminal.is_open()) GTEST_SKIP() << "there are no pseudo-terminals here: is /dev/pts mounted?";
    ProgressLine line(1, 0, 0.5, false);
    for (const size_t columns : {30, 200, 20, 1}) {
      terminal.resize(static_cast<int>(columns));
      line.step(1, {.loss = 1.25, .tokens = 100});
      shown.emplace_back(columns, terminal.shown());
    }
  }
  for (const auto& [columns, line] : shown) {
    if (columns == 200)
      EXPECT_TRUE(line.starts_with(start + text) && line.ends_with(" left")) << line;
    else
      EXPECT_EQ(line, start + text.substr(0, columns - 1));
  }
}

}  // namespace
}  // namespace bonsai::test
