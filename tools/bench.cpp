// bonsai bench CONFIG: measures the time of a training step (draw the batch, forward, backward, clip, update,
// read the loss) or of generation.
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <optional>

#include "bonsai/framework/config/yaml.h"
#include "bonsai/framework/core/parallel.h"
#include "bonsai/tools/command.h"
#include "bonsai/tools/profile.h"
#include "bonsai/trainers/generate.h"
#include "bonsai/trainers/loop.h"

namespace bonsai {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kTracedSteps = 10, kContinuations = 100;

struct Arguments : ConfigArguments {
  double seconds = 5;
  int64_t steps = 0;
  bool json = false, profile = false, generate = false, busy = false;
  std::string trace;
};

// A second process that keeps one core busy during the lifetime of this object.
class BusyProcess {
 public:
  BusyProcess() : parent_(::getpid()), child_(::fork()) {
    check(child_ >= 0, "bench", "no second process could be started");
    if (child_ > 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // even if the parent is killed
    for (volatile uint64_t spins = 0; ::getppid() == parent_;)
      for (int i = 0; i < 1000000; ++i) spins = spins + 1;
    ::_exit(0);
  }
  ~BusyProcess() {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }
  BusyProcess(const BusyProcess&) = delete;
  BusyProcess& operator=(const BusyProcess&) = delete;

 private:
  pid_t parent_, child_;
};

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

double median(std::vector<double> times) {
  const auto middle = times.begin() + static_cast<int64_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

struct Steps {
  std::vector<double> ms;
  StepResult last;
};

// `profile` is created after the warm-up steps if --profile is given.
Steps measure_steps(Trainer& trainer, const Arguments& a, std::optional<Profile>& profile) {
  const int64_t warmup = a.steps > 0 ? 0 : 3;
  Steps all;
  Clock::time_point begin = Clock::now();
  const auto more = [&](int64_t step) {
    if (a.steps > 0) return step < a.steps;
    return step < warmup + 3 || milliseconds_since(begin) < a.seconds * 1000;
  };
  for (int64_t step = 0; more(step); ++step) {
    if (step == warmup) {
      begin = Clock::now();
      if (a.profile) profile.emplace(trainer.config().trainer.type(), a.trace.empty() ? 0 : kTracedSteps);
    }
    const auto start = Clock::now();
    if (profile) profile->part("batch");
    all.last = trainer.step(step);
    if (profile) profile->end_step();
    if (step >= warmup) all.ms.push_back(milliseconds_since(start));
  }
  return all;
}

nlohmann::ordered_json bench_generation(Trainer& trainer, const Arguments& a) {
  const int64_t count = trainer.config().model.block_size - 1;
  if (count < 1) throw ConfigError("--generate needs a model.block_size of 2 or more");
  const int64_t continuations = a.steps > 0 ? a.steps : kContinuations;
  std::vector<double> times;
  for (int64_t i = 0; i < continuations; ++i) {
    const auto first = static_cast<int32_t>(i % trainer.config().model.vocab_size);
    const auto start = Clock::now();
    generate(trainer.model(), {first}, count, {.seed = static_cast<uint64_t>(i)});
    times.push_back(milliseconds_since(start));
  }
  const double ms = median(times);
  return {{"continuation_ms_median", ms},
          {"tokens_per_continuation", count},
          {"tokens_per_s", static_cast<double>(count) / ms * 1000},
          {"parameters", trainer.parameter_count()},
          {"continuations", continuations}};
}

nlohmann::ordered_json bench_steps(Trainer& trainer, const Arguments& a, std::optional<Profile>& profile) {
  const Steps steps = measure_steps(trainer, a, profile);
  const double ms = median(steps.ms);
  return {{"step_ms_median", ms},
          {"tokens_per_step", steps.last.tokens},
          {"tokens_per_s", static_cast<double>(steps.last.tokens) / ms * 1000},
          {"parameters", trainer.parameter_count()},
          {"loss", steps.last.loss},
          {"steps", steps.ms.size()}};
}

void bench(const Arguments& a) {
  RunConfig config = a.load();
  if (a.generate && config.device.threads == 0) set_threads(1);
  if (a.profile) config.trainer.trace_nonfinite = false;  // only one op watcher can be active
  prepare_data(config);
  check_memory(config);
  Trainer trainer(config);
  std::optional<BusyProcess> busy;
  if (a.busy) busy.emplace();
  std::optional<Profile> profile;
  nlohmann::ordered_json object =
      a.generate ? bench_generation(trainer, a) : bench_steps(trainer, a, profile);
  object["threads"] = threads();
  object["blas"] = cpu_info().blas;
  object["isa"] = cpu_info().level;
  if (a.busy) object["busy_processes"] = 1;
  if (!a.trace.empty()) write_trace(*profile, a.trace);
  if (a.json && profile) object["profile"] = profile_json(*profile);
  if (a.json) return fmt::print("{}\n", object.dump());
  for (const auto& [key, value] : object.items()) fmt::print("{:<24}{}\n", key, value.dump());
  if (profile) fmt::print("\n{}", profile_table(*profile));
}

}  // namespace

void add_bench(CLI::App& program) {
  auto a = std::make_shared<Arguments>();
  CLI::App* command = program.add_subcommand("bench", "measure the time of training steps or of generation");
  a->add_to(*command);
  command->add_option("--seconds", a->seconds, "duration of the measurement in seconds")
      ->check(number(between(0.01, 86400)));
  command->add_option("--steps", a->steps, "number of steps or continuations, instead of --seconds")
      ->transform(whole_number(0));
  command->add_flag("--json", a->json, "print one JSON object");
  CLI::Option* profile = command->add_flag("--profile", a->profile,
                                           "print the time of each op, forward and backward");
  command
      ->add_option(
          "--trace", a->trace,
          fmt::format("with --profile: write a timeline of the first {} steps to this file, for "
                      "chrome://tracing or Perfetto",
                      kTracedSteps))
      ->needs(profile)
      ->check(not_empty())
      ->type_name("FILE");
  command
      ->add_flag("--generate", a->generate,
                 fmt::format("measure {} continuations of one token to a full block, on one thread",
                             kContinuations))
      ->excludes(profile);
  command->add_flag("--busy", a->busy, "measure while another process keeps one core busy");
  command->callback([a] { bench(*a); });
}

}  // namespace bonsai
