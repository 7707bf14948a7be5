// Signals: the first one is noted, the second one ends the process, and an ignored signal stays ignored.
#include "bonsai/trainers/interrupt.h"

#include <thread>

#include "bonsai/tests/program.h"

namespace bonsai::test {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};

// Under nohup this program would start with SIGHUP ignored.
[[maybe_unused]] const bool kNoneIsIgnored = [] {
  for (const int signal : kSignals) std::signal(signal, SIG_DFL);
  return true;
}();

TEST(Interrupt, TheFirstSignalIsNotedAndAfterTheScopeAllIsAsBefore) {
  for (const int signal : kSignals) {
    {
      const InterruptScope scope;
      EXPECT_EQ(InterruptScope::signal(), 0) << "the scope before is forgotten";
      std::raise(signal);
      EXPECT_EQ(InterruptScope::signal(), signal);
    }
    for (const int other : kSignals) EXPECT_EQ(std::signal(other, SIG_DFL), SIG_DFL) << other;
  }
}

TEST(InterruptDeathTest, TheSecondSignalEndsTheProcessAtOnceWithItsStatus) {
  for (const int first : kSignals)
    for (const int second : kSignals)
      EXPECT_EXIT(
          {
            const InterruptScope scope;
            std::raise(first);
            std::raise(second);
            std::_Exit(0);
          },
          testing::ExitedWithCode(128 + second), "");
}

TEST(Interrupt, AnIgnoredSignalStaysIgnoredAndTheOthersDoNot) {
  for (const int ignored : kSignals) {
    const auto before = std::signal(ignored, SIG_IGN);
    {
      const InterruptScope scope;
      std::raise(ignored), std::raise(ignored);
      EXPECT_EQ(InterruptScope::signal(), 0);
      for (const int other : kSignals)
        if (other != ignored && !InterruptScope::signal()) std::raise(other);
      EXPECT_NE(InterruptScope::signal(), 0);
    }
    EXPECT_EQ(std::signal(ignored, before), SIG_IGN) << "afterwards it is as it was";
  }
}

// nohup relies on this.
TEST(Interrupt, ARunUnderNohupOutlivesItsTerminal) {
  const Folder folder;
  const TinyRun run;
  run.task->on_batch = [](const BatchIndex& index) {
    if (index.step == 3) std::raise(SIGHUP);
  };
  const auto before = std::signal(SIGHUP, SIG_IGN);
  const RunSummary summary = run.train(folder / "run");
  std::signal(SIGHUP, before);
  EXPECT_EQ(summary.interrupted_by, 0);
  EXPECT_EQ(summary.progress.step, 20);
}

// Both signals arrive while the process is stopped, so it cannot save between them. It ends without a new
// checkpoint, and the earlier checkpoint is intact.
TEST(Interrupt, ASecondSignalStopsTheProgramWithoutSaving) {
  const Program p;
  const RunFolder run{p.folder / "run"};
  const pid_t child = p.start({"train", "tiny.yaml", "--out", "run", "--quiet", "--threads", "1", "--set",
                               "trainer.max_steps=1000000", "--set", "trainer.checkpoint_interval=0"});
  for (int i = 0; i < 12000 && !std::filesystem::exists(run.best()); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  ::kill(child, SIGSTOP);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, WUNTRACED), child);
  ASSERT_TRUE(WIFSTOPPED(status));
  for (const int signal : {SIGINT, SIGTERM, SIGCONT}) ::kill(child, signal);
  status = p.finish(child).status;
  EXPECT_TRUE(status == 128 + SIGINT || status == 128 + SIGTERM) << status;
  EXPECT_FALSE(std::filesystem::exists(run.last()));
  EXPECT_GE(Checkpoint(run.best()).progress().step, 4);
}

}  // namespace
}  // namespace bonsai::test
