// A run that is killed at any moment, saving included, loses at most the steps since its last checkpoint, and
// goes on to the bytes of a run that was never killed.
#include <random>
#include <thread>

#include "tests/program.h"
#include "tests/random_seed.h"

namespace bonsai::test {
namespace {

using Clock = std::chrono::steady_clock;

std::string metrics_of(const RunFolder& run) {
  std::string lines;
  std::ifstream file(run.metrics());
  for (std::string line; std::getline(file, line);) {
    auto object = nlohmann::ordered_json::parse(line);
    object.erase("tokens_per_s");
    lines += object.dump() + "\n";
  }
  return lines;
}

TEST(Kill, ARunKilledAtTwentyRandomMomentsEndsInTheSameBytes) {
  const Program p;
  const auto arguments = [](const std::string& name, bool resume) {
    std::vector<std::string> words = {"train",
                                      "tiny.yaml",
                                      "--out",
                                      name,
                                      "--quiet",
                                      "--set",
                                      "trainer.max_steps=40",
                                      "--set",
                                      "trainer.checkpoint_interval=1",
                                      "--set",
                                      "model.d_model=64"};
    if (resume) words.push_back("--resume");
    return words;
  };
  const auto begin = Clock::now();
  const Outcome never = p.run(arguments("whole", false));
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  ASSERT_EQ(never.status, 0) << never.err;
  const RunFolder whole{p.folder / "whole"};

  // A moment in each twentieth of the run; where the run was faster this time, another.
  std::mt19937_64 random(random_seed());
  int killed = 0, with_checkpoint = 0, while_saving = 0;
  for (int attempt = 0; attempt < 100 && killed < 20; ++attempt) {
    const std::string name = "run" + std::to_string(attempt);
    const RunFolder run{p.folder / name};
    const double moment = seconds * (attempt % 20 + std::uniform_real_distribution<>(0, 1)(random)) / 20;
    const pid_t child = p.start(arguments(name, false));
    std::this_thread::sleep_for(std::chrono::duration<double>(moment));
    ::kill(child, SIGKILL);
    if (p.finish(child).status != 128 + SIGKILL) continue;
    ++killed;
    if (std::filesystem::exists(run.last())) {
      ++with_checkpoint;
      EXPECT_GE(Checkpoint(run.path).progress().step, 1) << "killed after " << moment << " s";
      while_saving += std::distance(std::filesystem::directory_iterator(run.last().parent_path()), {}) > 1;
    }
    const Outcome resumed = p.run(arguments(name, std::filesystem::exists(run.path)));
    ASSERT_EQ(resumed.status, 0) << "killed after " << moment << " s: " << resumed.err;
    EXPECT_EQ(contents(run.last()), contents(whole.last())) << "killed after " << moment << " s";
    EXPECT_EQ(contents(run.best()), contents(whole.best())) << "killed after " << moment << " s";
    EXPECT_EQ(metrics_of(run), metrics_of(whole)) << "killed after " << moment << " s";
  }
  EXPECT_EQ(killed, 20) << "the runs were too fast to be killed";
  fmt::print("{} killed, {} with a checkpoint, {} while saving\n", killed, with_checkpoint, while_saving);
}

}  // namespace
}  // namespace bonsai::test
