// The output of `bonsai bench`: its keys and its profile. No process may be left running.
#include <sys/prctl.h>

#include <thread>

#include "bonsai/tests/program.h"

namespace bonsai::test {
namespace {

using Json = nlohmann::json;

Json json_of(const Outcome& o) {
  EXPECT_EQ(o.status, 0) << o.err;
  return Json::parse(o.out, nullptr, false);
}

TEST(Bench, HasTheKeysThatScriptsRead) {
  const Program p;
  const Json steps = json_of(p.run({"bench", "tiny.yaml", "--steps", "3", "--json"}));
  for (const char* key : {"step_ms_median", "tokens_per_step", "tokens_per_s", "parameters", "loss", "steps",
                          "threads", "blas", "isa"})
    EXPECT_TRUE(steps.contains(key)) << key;
  EXPECT_FALSE(steps.contains("profile") || steps.contains("busy_processes")) << steps;
  const Json text = json_of(p.run({"bench", "tiny.yaml", "--generate", "--json"}));
  EXPECT_EQ(text["tokens_per_continuation"], 7);
  EXPECT_EQ(text["continuations"], 100);
  EXPECT_EQ(text["threads"], 1);
  EXPECT_NEAR(text["tokens_per_s"].get<double>() * text["continuation_ms_median"].get<double>(), 7000, 1e-6);
  EXPECT_EQ(json_of(p.run(
                {"bench", "tiny.yaml", "--generate", "--steps", "2", "--threads", "2", "--json"}))["threads"],
            2);
  expect_failure(p.run({"bench", "tiny.yaml", "--generate", "--set", "model.block_size=1"}), 2,
                 {"block_size of 2"});
}

TEST(Bench, AProfileAddsUpAndItsTraceIsOneArrayOfCompleteEvents) {
  const Program p;
  const Json all =
      json_of(p.run({"bench", "tiny.yaml", "--steps", "12", "--profile", "--trace", "trace.json", "--json"}));
  double share = 0;
  for (const Json& row : all["profile"]) share += row["share"].get<double>();
  EXPECT_NEAR(share, 1, 1e-9);
  const Json trace = Json::parse(contents(p.folder / "trace.json"), nullptr, false);
  ASSERT_TRUE(trace.is_array());
  int updates = 0;
  for (const Json& e : trace) {
    EXPECT_EQ(e["ph"], "X");
    EXPECT_GE(e["ts"].get<double>(), 0);
    EXPECT_GE(e["dur"].get<double>(), 0);
    updates += e["name"] == "adamw" && e["cat"] == "kernel";
  }
  EXPECT_EQ(updates, 20)
      << "a trace is of the first ten steps; what decays and what does not are updated apart";
  const Outcome table = p.run({"bench", "tiny.yaml", "--steps", "2", "--profile"});
  for (const char* word : {"backward  linear", "GFLOP/s", "GB/s", "(outside ops)", "100.0 %"})
    EXPECT_NE(table.out.find(word), std::string::npos) << table.out;
  EXPECT_EQ(json_of(p.run({"bench", "tiny.yaml", "--steps", "2", "--profile", "--json", "--set",
                           "trainer.trace_nonfinite=true"}))["profile"][0]
                .contains("part"),
            true);
  EXPECT_EQ(p.run({"bench", "tiny.yaml", "--trace", "trace.json"}).status, 2);
  EXPECT_EQ(p.run({"bench", "tiny.yaml", "--profile", "--generate"}).status, 2);
  expect_failure(p.run({"bench", "tiny.yaml", "--steps", "1", "--profile", "--trace", "none/trace.json"}), 1,
                 {"none/trace.json could not be written"});
}

// BONSAI_ISA selects a level; a level that cannot run is refused in one sentence.
TEST(Bench, TheLevelThatWasAskedForRunsOrIsRefused) {
  const Program p;
  for (const std::string level : {"v2", "v3", "v4", "plain", "v9"}) {
    ::setenv("BONSAI_ISA", level.c_str(), 1);
    const Outcome o = p.run({"bench", "tiny.yaml", "--steps", "1", "--json"});
    if (o.status == 0)
      EXPECT_EQ(json_of(o)["isa"], level);
    else
      expect_failure(o, 2,
                     {"[backend] BONSAI_ISA=" + level +
                      (o.err.find("is not supported by") < o.err.size()
                       ? " is not supported by this processor"
                                                                        : " is not a level of this build")});
    EXPECT_NE(o.status == 0 && level == "v9", true);
  }
  ::unsetenv("BONSAI_ISA");
}

// Orphaned processes become children of this process; there must be none.
bool nobody_is_left() {
  for (int i = 0; i < 200; ++i) {
    if (::waitpid(-1, nullptr, WNOHANG) < 0) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return false;
}

// Returns whether the process has a child. The fourth field of /proc/PID/stat, the second after the name in
// brackets, is the parent.
bool has_child(pid_t parent) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::string stat;
    std::getline(std::ifstream(entry.path() / "stat"), stat, '\0');
    const size_t name = stat.rfind(") ");
    if (name != std::string::npos && std::atoi(stat.c_str() + name + 4) == parent) return true;
  }
  return false;
}

TEST(Bench, TheBusyProcessIsGoneHoweverTheProgramEnds) {
  ASSERT_EQ(::prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  const Program p;
  EXPECT_EQ(json_of(p.run({"bench", "tiny.yaml", "--busy", "--steps", "2", "--json"}))["busy_processes"], 1);
  EXPECT_TRUE(nobody_is_left());
  EXPECT_EQ(p.run({"bench", "tiny.yaml", "--busy", "--steps", "2", "--set", "model.init_std=1e38"}).status,
            1);
  EXPECT_TRUE(nobody_is_left());
  const pid_t child = p.start({"bench", "tiny.yaml", "--busy", "--seconds", "60"});
  for (int i = 0; i < 3000 && !has_child(child); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_TRUE(has_child(child)) << "the busy process never began";
  ::kill(child, SIGKILL);
  EXPECT_EQ(p.finish(child).status, 128 + SIGKILL);
  EXPECT_TRUE(nobody_is_left());
}

}  // namespace
}  // namespace bonsai::test
