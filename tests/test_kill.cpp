// A run that is killed at any moment, even while saving, loses at most the steps since its last checkpoint;
// the resumed run ends with the same bytes as a run that was never killed.
#include <random>
#include <thread>

#include "bonsai/tests/program.h"
#include "bonsai/tests/random_seed.h"

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

std::vector<std::string> arguments(const std::string& name, const std::vector<std::string>& settings) {
  std::vector<std::string> words = {"train", "tiny.yaml", "--out", name, "--quiet"};
  for (const std::string& setting : settings) words.insert(words.end(), {"--set", setting});
  return words;
}

// Resumes a killed run, or starts it again if it left nothing, and compares all files with those of the whole
// run.
void expect_same_end(const Program& p, const std::string& name, const std::vector<std::string>& settings) {
  const RunFolder run{p.folder / name}, whole{p.folder / "whole"};
  std::vector<std::string> again = arguments(name, settings);
  if (std::filesystem::exists(run.path)) again.push_back("--resume");
  if (std::filesystem::exists(run.config())) again = {"train", "--resume", name, "--quiet"};
  const Outcome resumed = p.run(again);
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_EQ(contents(run.last()), contents(whole.last()));
  EXPECT_EQ(contents(run.best()), contents(whole.best()));
  EXPECT_EQ(metrics_of(run), metrics_of(whole));
}

int64_t lines_of(const RunFolder& run) {
  const std::string text = contents(run.metrics());
  return std::count(text.begin(), text.end(), '\n');
}

bool is_unfinished(const std::filesystem::path& checkpoint) {
  std::error_code missing;
  for (const auto& entry : std::filesystem::directory_iterator(checkpoint.parent_path(), missing))
    if (entry.path().filename() != checkpoint.filename()) return true;
  return false;
}

TEST(Kill, ARunKilledAtTwentyRandomMomentsEndsInTheSameBytes) {
  const Program p;
  const std::vector<std::string> settings = {"trainer.max_steps=40", "trainer.checkpoint_interval=1",
                                             "model.d_model=64"};
  const auto begin = Clock::now();
  const Outcome never = p.run(arguments("whole", settings));
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  ASSERT_EQ(never.status, 0) << never.err;

  // Each run is killed in another twentieth of its time. A run that ended before that is not counted.
  std::mt19937_64 random(random_seed());
  int killed = 0, with_checkpoint = 0;
  for (int attempt = 0; attempt < 100 && killed < 20; ++attempt) {
    const std::string name = "run" + std::to_string(attempt);
    const RunFolder run{p.folder / name};
    const double moment = seconds * (attempt % 20 + std::uniform_real_distribution<>(0, 1)(random)) / 20;
    const pid_t child = p.start(arguments(name, settings));
    std::this_thread::sleep_for(std::chrono::duration<double>(moment));
    ::kill(child, SIGKILL);
    if (p.finish(child).status != 128 + SIGKILL) continue;
    ++killed;
    SCOPED_TRACE(fmt::format("killed after {} s", moment));
    if (std::filesystem::exists(run.last())) {
      ++with_checkpoint;
      EXPECT_GE(Checkpoint(run.path).progress().step, 1);
    }
    expect_same_end(p, name, settings);
  }
  EXPECT_EQ(killed, 20) << "the runs were too fast to be killed";
  fmt::print("{} killed, {} with a checkpoint\n", killed, with_checkpoint);
}

// Each run, with checkpoints of 10 MB, is killed as soon as the temporary file appears. If the file is still
// there afterwards, the run was killed while it saved.
TEST(Kill, ARunKilledWhileItSavesEndsInTheSameBytes) {
  const Program p;
  const std::vector<std::string> settings = {"trainer.max_steps=8", "trainer.checkpoint_interval=1",
                                             "model.d_model=256"};
  const Outcome never = p.run(arguments("whole", settings));
  ASSERT_EQ(never.status, 0) << never.err;
  int while_saving = 0;
  for (int attempt = 0; attempt < 60 && while_saving < 6; ++attempt) {
    const std::string name = "run" + std::to_string(attempt);
    const RunFolder run{p.folder / name};
    const auto saving = [&] { return is_unfinished(run.last()) || is_unfinished(run.best()); };
    const pid_t child = p.start(arguments(name, settings));
    const int lines = attempt % 6;  // lines of metrics before the save to interrupt
    p.wait(child,
           [&] { return std::filesystem::exists(run.metrics()) && lines_of(run) > lines && saving(); });
    ::kill(child, SIGKILL);
    if (p.finish(child).status != 128 + SIGKILL || !saving()) continue;
    ++while_saving;
    SCOPED_TRACE(fmt::format("killed while saving, attempt {}", attempt));
    expect_same_end(p, name, settings);
  }
  EXPECT_EQ(while_saving, 6) << "no save was slow enough to be killed in";
}

}  // namespace
}  // namespace bonsai::test
