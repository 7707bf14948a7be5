// bonsai bench CONFIG: the time of the trainer's own step: draw the batch, forward, backward, clip, update,
// read the loss.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "framework/backend/backend.h"
#include "framework/core/parallel.h"
#include "tools/command.h"
#include "trainers/loop.h"

namespace bonsai {

void add_bench(CLI::App& program) {
  struct Arguments : ConfigArguments {
    double seconds = 5;
    int64_t steps = 0;
    bool json = false;
  };
  auto a = std::make_shared<Arguments>();
  CLI::App* command = program.add_subcommand("bench", "time training steps");
  a->add_to(*command);
  command->add_option("--seconds", a->seconds, "how long to measure")->check(number(between(0.01, 86400)));
  command->add_option("--steps", a->steps, "or how many steps")->transform(whole_number(0));
  command->add_flag("--json", a->json, "print one JSON object");
  command->callback([a] {
    using Clock = std::chrono::steady_clock;
    RunConfig config = a->load();
    prepare_data(config);
    Trainer trainer(config);
    const int64_t warmup = a->steps > 0 ? 0 : 3;
    std::vector<double> times;
    StepResult result;
    Clock::time_point begin = Clock::now();
    const auto more = [&](int64_t step) {
      if (a->steps > 0) return step < a->steps;
      return step < warmup + 3 || std::chrono::duration<double>(Clock::now() - begin).count() < a->seconds;
    };
    for (int64_t step = 0; more(step); ++step) {
      const auto start = Clock::now();
      result = trainer.step(step);
      const double ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
      if (step >= warmup) times.push_back(ms);
      if (step + 1 == warmup) begin = Clock::now();
    }
    std::nth_element(times.begin(), times.begin() + static_cast<int64_t>(times.size() / 2), times.end());
    const double median = times[times.size() / 2];
    const nlohmann::ordered_json object = {{"step_ms_median", median},
                                           {"tokens_per_step", result.tokens},
                                           {"tokens_per_s", static_cast<double>(result.tokens) / median * 1000},
                                           {"parameters", trainer.parameter_count()},
                                           {"loss", result.loss},
                                           {"steps", times.size()},
                                           {"threads", threads()},
                                           {"blas", cpu_info().blas},
                                           {"isa", cpu_info().level}};
    if (a->json)
      fmt::print("{}\n", object.dump());
    else
      for (const auto& [key, value] : object.items()) fmt::print("{:<16} {}\n", key, value.dump());
  });
}

}  // namespace bonsai
