// Checks every schedule at steps with a known learning rate.
#include "bonsai/framework/config/yaml.h"
#include "bonsai/tests/support.h"
#include "bonsai/trainers/config.h"

namespace bonsai::test {
namespace {

RunConfig run_with(const std::string& schedule, int64_t max_steps = 100) {
  return ConfigFile::from_text(fmt::format("trainer: {{max_steps: {}}}\nschedule: {}\n", max_steps, schedule),
                               "run.yaml")
      .load<RunConfig>();
}

TEST(Schedules, WarmUpToTheFullRateThenFollowsTheCosineOfMaxSteps) {
  const ScheduleConfig s{.kind = "cosine", .learning_rate = 1, .min_learning_rate = 0.1, .warmup_steps = 2};
  const double pi = std::acos(-1);
  const std::vector<double> expected = {0.5,
                                        1,
                                        1,
                                        0.1 + 0.45 * (1 + std::cos(pi / 8)),
                                        0.1 + 0.45 * (1 + std::cos(pi / 4)),
                                        0.1 + 0.45 * (1 + std::cos(pi * 3 / 8)),
                                        0.55};
  for (size_t step = 0; step < expected.size(); ++step)
    EXPECT_NEAR(learning_rate(s, static_cast<int64_t>(step), 10), expected[step], 1e-15) << "step " << step;
  EXPECT_EQ(learning_rate(s, 10, 10), 0.1);
  EXPECT_EQ(learning_rate(s, 1000, 10), 0.1);
  EXPECT_NEAR(learning_rate(s, 6, 12), 0.1 + 0.45 * (1 + std::cos(pi * 4 / 10)), 1e-15) << "a longer run";

  const ScheduleConfig no_warmup{
      .kind = "cosine", .learning_rate = 1, .min_learning_rate = 0.1, .warmup_steps = 0};
  EXPECT_EQ(learning_rate(no_warmup, 0, 10), 1);
  const ScheduleConfig constant{
      .kind = "constant", .learning_rate = 1, .min_learning_rate = 0.1, .warmup_steps = 4};
  EXPECT_EQ(learning_rate(constant, 0, 10), 0.25);
  EXPECT_EQ(learning_rate(constant, 9, 10), 1);
  const ScheduleConfig longer{
      .kind = "cosine", .learning_rate = 1, .min_learning_rate = 0.1, .warmup_steps = 20};
  for (int64_t step = 0; step < 10; ++step)
    EXPECT_DOUBLE_EQ(learning_rate(longer, step, 10), static_cast<double>(step + 1) / 20);
}

TEST(Schedules, HaveTheirRates) {
  const std::string rates = "learning_rate: 1, min_learning_rate: 0.2, warmup_steps: 20";
  const std::map<std::string, std::map<int64_t, double>> expected = {
      {"kind: constant", {{19, 1}, {20, 1}, {99, 1}, {500, 1}}},
      {"kind: linear", {{20, 1}, {40, 0.8}, {60, 0.6}, {99, 0.21}, {100, 0.2}, {500, 0.2}}},
      {"kind: cosine", {{20, 1}, {60, 0.6}, {40, 0.6 + 0.4 * std::sqrt(0.5)}, {100, 0.2}, {500, 0.2}}},
      {"kind: wsd", {{20, 1}, {80, 1}, {90, 0.6}, {95, 0.4}, {100, 0.2}, {500, 0.2}}},
      {"kind: wsd, decay_steps: 40, shape: one_minus_sqrt", {{60, 1}, {70, 0.6}, {100, 0.2}}},
      {"kind: inverse_sqrt", {{19, 1}, {79, 0.5}, {499, 0.2}, {500, 0.2}}},
      {"kind: one_cycle", {{0, 0.04}, {10, 0.52}, {20, 1}, {60, 0.6}, {100, 0.2}}},
      {"kind: piecewise, points: [{step: 30, learning_rate: 0.5}, {step: 80, learning_rate: 0.1}]",
       {{20, 1}, {29, 1}, {30, 0.5}, {79, 0.5}, {80, 0.1}, {500, 0.1}}},
      {"kind: piecewise, interpolate: true, points: [{step: 30, learning_rate: 0.5}, {step: 80, "
       "learning_rate: 0}]",
       {{20, 1}, {25, 0.75}, {30, 0.5}, {55, 0.25}, {80, 0}, {99, 0}}}};
  std::set<std::string> kinds;
  for (const auto& [keys, points] : expected) {
    const RunConfig run = run_with("{" + keys + ", " + rates + "}");
    kinds.insert(run.schedule.kind.name());
    for (const auto& [step, rate] : points)
      EXPECT_NEAR(learning_rate(run.schedule, step, 100), rate, 1e-14) << keys << " at step " << step;
    if (run.schedule.kind == "one_cycle") continue;
    EXPECT_DOUBLE_EQ(learning_rate(run.schedule, 4, 100), 0.25) << keys;
  }
  for (const std::string& name : registry<ScheduleKind>().names()) EXPECT_TRUE(kinds.contains(name)) << name;
}

TEST(Schedules, RefuseKeysThatContradictEachOther) {
  EXPECT_EQ(error_of([] { run_with("{kind: wsd, decay_steps: 95}"); }),
            "run.yaml: schedule: decay_steps 95 is more than the 90 steps after the warm-up; lower it");
  EXPECT_EQ(
      error_of([] { run_with("{kind: piecewise}"); }),
      "run.yaml: schedule: points is empty; list at least one, as in [{step: 100, learning_rate: 1e-4}]");
  EXPECT_EQ(
      error_of([] { run_with("{kind: piecewise, points: [{step: 20}, {step: 20}]}"); }),
      "run.yaml: schedule: the point at step 20 must come after the warm-up and the point before, step 20");
  EXPECT_NE(error_of([] { run_with("{decay: constant}"); }).find("it is called kind now"), std::string::npos);
}

}  // namespace
}  // namespace bonsai::test
