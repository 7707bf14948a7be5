// Whole runs: a run that was stopped and resumed equals, byte for byte, one that was never stopped, and
// observing a run does not change it.
#include <csignal>
#include <nlohmann/json.hpp>

#include "bonsai/framework/backend/backend.h"
#include "bonsai/framework/io/file.h"
#include "bonsai/tests/training.h"

namespace bonsai::test {
namespace {

std::vector<nlohmann::json> metrics_of(const std::filesystem::path& folder) {
  std::vector<nlohmann::json> lines;
  std::ifstream file(RunFolder{folder}.metrics());
  for (std::string line; std::getline(file, line);) {
    lines.push_back(nlohmann::json::parse(line));
    lines.back().erase("tokens_per_s");
  }
  return lines;
}

std::vector<double> series(const std::filesystem::path& folder, const std::string& key) {
  std::vector<double> values;
  for (const auto& line : metrics_of(folder))
    if (line.contains(key)) values.push_back(line[key]);
  return values;
}

std::string last_of(const std::filesystem::path& folder) { return contents(RunFolder{folder}.last()); }
std::string best_of(const std::filesystem::path& folder) { return contents(RunFolder{folder}.best()); }

// Interrupts like Ctrl-C in the last micro-batch after `step` steps: that step is finished and saved.
RunSummary train_and_interrupt(const TinyRun& run, const std::filesystem::path& folder, int64_t step,
                               bool resume = false) {
  run.task->on_batch = [step](const BatchIndex& index) {
    if (index.step == step && index.micro_batch == 1) std::raise(SIGINT);
  };
  const RunSummary summary = run.train(folder, resume);
  run.task->on_batch = {};
  return summary;
}

TEST(Run, TheSameSeedGivesTheSameBytesAndAnotherSeedOthers) {
  const Folder folder;
  TinyRun().train(folder / "a");
  TinyRun().train(folder / "b");
  TinyRun({"trainer.seed=2"}).train(folder / "c");
  EXPECT_EQ(last_of(folder / "a"), last_of(folder / "b"));
  EXPECT_EQ(best_of(folder / "a"), best_of(folder / "b"));
  EXPECT_EQ(metrics_of(folder / "a"), metrics_of(folder / "b"));
  EXPECT_NE(series(folder / "a", "train_loss"), series(folder / "c", "train_loss"));
}

TEST(Run, TheNumberOfThreadsDoesNotChangeTheBytes) {
  const Folder folder;
  for (const int count : {1, 2, 3}) {
    const Threads scope(count);
    TinyRun({"model.d_model=64", "model.block_size=32", "trainer.batch_size=8", "trainer.max_steps=3"})
        .train(folder / std::to_string(count));
  }
  EXPECT_EQ(last_of(folder / "1"), last_of(folder / "2"));
  EXPECT_EQ(last_of(folder / "1"), last_of(folder / "3"));
}

TEST(Run, AResumedRunEndsInTheBytesOfOneThatNeverStopped) {
  // Stops in the warm-up, at its end, between intervals, at intervals and before the last step.
  const std::vector<std::string> settings = {"trainer.log_interval=3", "trainer.sample_interval=6"};
  const Folder folder;
  TinyRun(settings).train(folder / "whole");
  for (const int64_t stop : {0, 2, 4, 9, 11, 18}) {
    const auto path = folder / std::to_string(stop);
    const RunSummary first = train_and_interrupt(TinyRun(settings), path, stop);
    EXPECT_TRUE(first.interrupted_by);
    EXPECT_EQ(first.progress.step, stop + 1);
    const RunSummary second = TinyRun(settings).train(path, true);
    EXPECT_FALSE(second.interrupted_by);
    EXPECT_EQ(second.progress.step, 20);
    EXPECT_EQ(last_of(path), last_of(folder / "whole")) << "stopped after " << stop + 1;
    EXPECT_EQ(best_of(path), best_of(folder / "whole")) << "stopped after " << stop + 1;
    EXPECT_EQ(metrics_of(path), metrics_of(folder / "whole")) << "stopped after " << stop + 1;
  }
}

// B47: a signal stops an evaluation or a sample between two units. The checkpoint records what remains.
TEST(Run, ASignalInAnEvaluationOrASampleStopsThereAndTheRunGoesOnThere) {
  const std::vector<std::string> settings = {"trainer.sample_interval=4", "trainer.checkpoint_interval=7"};
  const Folder folder;
  TinyRun(settings).train(folder / "whole");
  for (const std::string work : {"evaluation", "sample", "full evaluation"})
    for (const int unit : {0, 1})
      for (const int64_t step : {4, 12, 20}) {
        if (work == "full evaluation" && step < 20) continue;
        const auto path = folder / fmt::format("{}{}-{}", work, unit, step);
        TinyRun run(settings);
        int64_t trained = 0;
        int later = 0;
        run.task->on_batch = [&](const BatchIndex& index) { trained = index.step + 1; };
        run.task->on_unit = [&](const std::string& now, int at) {
          later += now == work && trained == step && at > unit;
          if (now == work && trained == step && at == unit) std::raise(SIGTERM);
        };
        const RunSummary first = run.train(path);
        EXPECT_EQ(first.interrupted_by, SIGTERM);
        EXPECT_EQ(later, 0) << "units after the signal";
        EXPECT_EQ(Checkpoint(path).progress().step, step);
        EXPECT_EQ(Checkpoint(path).progress().pending, work == "sample"       ? Pending::sample
                                                       : work == "evaluation" ? Pending::evaluation
                                                                              : Pending::full_evaluation);
        TinyRun(settings).train(path, true);
        EXPECT_EQ(last_of(path), last_of(folder / "whole")) << path;
        EXPECT_EQ(best_of(path), best_of(folder / "whole")) << path;
        EXPECT_EQ(metrics_of(path), metrics_of(folder / "whole")) << path;
      }
}

// B47: a step is abandoned between two micro-batches and repeated by the resumed run.
TEST(Run, ASignalBetweenMicroBatchesLeavesTheStepUndone) {
  const Folder folder;
  TinyRun().train(folder / "whole");
  for (const int64_t step : {0, 9}) {
    const auto path = folder / std::to_string(step);
    TinyRun run;
    int later = 0;
    run.task->on_batch = [&](const BatchIndex& index) {
      later += index.step == step && index.micro_batch > 0;
      if (index.step == step) std::raise(SIGINT);
    };
    EXPECT_EQ(run.train(path).progress.step, step);
    EXPECT_EQ(later, 0) << "micro-batches after the signal";
    TinyRun().train(path, true);
    EXPECT_EQ(last_of(path), last_of(folder / "whole")) << step;
    EXPECT_EQ(metrics_of(path), metrics_of(folder / "whole")) << step;
  }
}

// B47: for every task, an evaluation stops between batches and between answers, and a sample between tokens.
TEST(Run, EveryTaskStopsBetweenItsUnits) {
  struct Stop {};
  const auto units = [](const std::function<void(const Poll&)>& work) {
    int all = 0, before_stop = 0;
    work([&] { ++all; });
    EXPECT_THROW(work([&] {
                   if (++before_stop == 2) throw Stop();
                 }),
                 Stop);
    EXPECT_EQ(before_stop, 2);
    return all;
  };
  for (const std::string& task : registry<TaskKind>().names()) {
    RunConfig config = load_run(ConfigFile::from_text(
        "task: " + task + "\nmodel: {n_layers: 1, n_encoder_layers: " + (task == "seq2seq" ? "1" : "0") +
            ", n_heads: 1, d_model: 8, block_size: 64}\n",
        "task.yaml"));
    prepare_data(config);
    Trainer trainer(config);
    const bool answers = task == "reverse" || task == "seq2seq";
    EXPECT_GE(units([&](const Poll& poll) { config.data->evaluate(trainer.model(), 4, 3, poll); }),
              answers ? 30 : 3)
        << task;
    EXPECT_GE(units([&](const Poll& poll) { config.data->sample(trainer.model(), 1, poll); }), 8) << task;
  }
}

TEST(Run, StoppingTwiceAndResumingAFinishedRunChangeNothing) {
  const Folder folder;
  TinyRun().train(folder / "whole");
  train_and_interrupt(TinyRun(), folder / "parts", 3);
  train_and_interrupt(TinyRun(), folder / "parts", 12, true);
  TinyRun().train(folder / "parts", true);
  EXPECT_EQ(last_of(folder / "parts"), last_of(folder / "whole"));
  TinyRun().train(folder / "parts", true);
  EXPECT_EQ(last_of(folder / "parts"), last_of(folder / "whole"));
  EXPECT_EQ(metrics_of(folder / "parts"), metrics_of(folder / "whole"));
}

// The run was killed after step 12: the checkpoint is of step 10, and the last line is incomplete.
TEST(Run, MetricsOfStepsThatWereLostAreWrittenOnce) {
  const Folder folder;
  TinyRun().train(folder / "whole");
  train_and_interrupt(TinyRun(), folder / "killed", 9);
  std::ofstream(RunFolder{folder / "killed"}.metrics(), std::ios::app) << R"({"step":11,"train_loss":9.0})"
                                                                       << "\n"
                                                                       << R"({"step":12,"val_loss":0.5})"
                                                                       << "\n"
                                                                       << R"({"step":1)";
  TinyRun().train(folder / "killed", true);
  EXPECT_EQ(metrics_of(folder / "killed"), metrics_of(folder / "whole"));
}

TEST(Run, TheFirstResumedStepHasItsOwnLearningRateAlsoOfALongerRun) {
  const Folder folder;
  for (const int64_t stop : {1, 2, 5}) {  // in the warm-up, at its end, in the decay
    const auto path = folder / std::to_string(stop);
    const TinyRun longer({"trainer.max_steps=24"});
    train_and_interrupt(TinyRun(), path, stop);
    longer.train(path, true);
    const std::vector<double> rates = series(path, "lr");
    ASSERT_EQ(rates.size(), 24u);
    for (int64_t step = 0; step < 24; ++step)
      EXPECT_EQ(rates[static_cast<size_t>(step)],
                learning_rate(longer.config.schedule, step, step <= stop ? 20 : 24))
          << step;
  }
}

TEST(Run, EvaluatingAndSamplingDoNotChangeTraining) {
  const Folder folder;
  std::vector<std::vector<double>> losses;
  for (const std::string interval : {"1", "10", "1000"})
    for (const bool sample : {false, true}) {
      const auto path = folder / (interval + (sample ? "s" : ""));
      TinyRun({"trainer.max_steps=30", "trainer.eval_interval=" + interval,
               "trainer.sample_interval=" + (sample ? interval : "0"),
               "trainer.checkpoint_interval=" + interval})
          .train(path);
      losses.push_back(series(path, "train_loss"));
      EXPECT_EQ(losses.back().size(), 30u);
      EXPECT_EQ(losses.back(), losses.front()) << interval << sample;
    }
}

TEST(Run, StopsEarlyAfterSoManyEvaluationsWithoutABetterLoss) {
  const std::vector<std::string> settings = {"trainer.early_stop=2", "trainer.eval_interval=2"};
  const std::vector<double> losses = {3, 2, 2.5, 1, 1, 1.5, 0};
  const Folder folder;
  TinyRun run(settings);
  run.task->losses = losses;
  const RunSummary summary = run.train(folder / "whole");
  EXPECT_EQ(summary.progress.step, 12);
  EXPECT_EQ(summary.progress.best_loss, 1);
  EXPECT_EQ(series(folder / "whole", "val_loss"), std::vector<double>(losses.begin(), losses.end() - 1));
  EXPECT_EQ(series(folder / "whole", "val_loss_full"), std::vector<double>{0}) << "B41: at an early stop too";
  EXPECT_EQ(Checkpoint(RunFolder{folder / "whole"}.best()).progress().step, 8);
  EXPECT_EQ(Checkpoint(folder / "whole").progress().step, 12);

  // A resumed run continues the count of early stopping, and a run that stopped early stays stopped.
  TinyRun first(settings), second(settings);
  first.task->losses = losses;
  second.task->losses = {losses.begin() + 5, losses.end()};
  train_and_interrupt(first, folder / "parts", 10);
  EXPECT_EQ(second.train(folder / "parts", true).progress.step, 12);
  EXPECT_EQ(last_of(folder / "parts"), last_of(folder / "whole"));
  EXPECT_EQ(TinyRun(settings).train(folder / "parts", true).progress.step, 12);
}

TEST(Run, MetricsHaveTheNumbersOfEachStep) {
  const Folder folder;
  const TinyRun run({"trainer.max_steps=6"});
  run.train(folder / "run");
  Trainer trainer(run.config);
  std::vector<double> losses, rates, norms;
  for (int64_t step = 0; step < 6; ++step) {
    const StepResult r = trainer.step(step);
    losses.push_back(r.loss), rates.push_back(r.learning_rate), norms.push_back(r.gradient_norm);
  }
  EXPECT_EQ(series(folder / "run", "train_loss"), losses);
  EXPECT_EQ(series(folder / "run", "lr"), rates);
  EXPECT_EQ(series(folder / "run", "grad_norm"), norms);
  std::vector<double> steps;
  for (const auto& line : metrics_of(folder / "run"))
    if (line.contains("train_loss")) steps.push_back(line["step"]);
  EXPECT_EQ(steps, (std::vector<double>{1, 2, 3, 4, 5, 6}));
}

// Evaluations use eval_batches batches. At the end the loss over all validation data is logged with a key of
// its own (B41).
TEST(Run, TheEndHasTheLossOverAllOfTheData) {
  const Folder folder;
  const TinyRun run({"trainer.max_steps=8"});
  run.train(folder / "run");
  Trainer trainer(run.config);
  std::vector<double> losses;
  for (int64_t step = 0; step < 8; ++step) {
    trainer.step(step);
    if (step % 4 == 3) losses.push_back(run.task->evaluate(trainer.model(), 2, 2, kNoPoll).loss);
  }
  EXPECT_EQ(series(folder / "run", "val_loss"), losses);
  EXPECT_EQ(series(folder / "run", "val_loss_full"),
            std::vector<double>{run.task->evaluate(trainer.model(), 2, 0, kNoPoll).loss});
  EXPECT_NE(series(folder / "run", "val_loss_full")[0], losses[1]);
}

// B41: the test sets the losses of evaluations over part of the data, which decrease; over all data the loss
// is 9.
TEST(Run, TheBestIsChosenByLossesOverTheSameBatches) {
  const Folder folder;
  const auto train = [&](const std::string& name, const std::vector<std::string>& settings,
                         bool resume = false) {
    TinyRun run(settings);
    run.task->part_and_whole = true;
    return run.train(folder / name, resume);
  };
  EXPECT_EQ(train("run", {}).progress.best_loss, 1);
  EXPECT_EQ(series(folder / "run", "val_loss"), (std::vector<double>{5, 4, 3, 2, 1}));
  EXPECT_EQ(series(folder / "run", "val_loss_full"), std::vector<double>{9});
  EXPECT_EQ(metrics_of(folder / "run").back()["step"], 20);
  EXPECT_EQ(Checkpoint(RunFolder{folder / "run"}.best()).progress().step, 20) << "the last is the best";
  // If every evaluation is over all data, the last one is not repeated.
  EXPECT_EQ(train("all", {"trainer.eval_batches=0"}).progress.best_loss, 9);
  EXPECT_EQ(series(folder / "all", "val_loss").size(), 5u);
  EXPECT_TRUE(series(folder / "all", "val_loss_full").empty());

  // A run that is resumed with other evaluation batches forgets its best loss. It keeps it if the same
  // sequences are only batched differently.
  const auto best_of_resumed = [&](const std::vector<std::string>& settings) {
    std::filesystem::remove_all(folder / "copy");
    std::filesystem::copy(folder / "run", folder / "copy", std::filesystem::copy_options::recursive);
    TinyRun run(settings);
    run.task->losses = {7};
    testing::internal::CaptureStderr();
    const double best = run_training(run.config, {folder / "copy"}, true, false).progress.best_loss;
    const bool told =
        testing::internal::GetCapturedStderr().find("the best loss starts anew") != std::string::npos;
    EXPECT_EQ(told, best == 7) << settings[1];
    return best;
  };
  const std::string longer = "trainer.max_steps=21";
  for (const std::string other :
       {"trainer.eval_batches=3", "trainer.eval_batches=0", "trainer.batch_size=3"})
    EXPECT_EQ(best_of_resumed({longer, other}), 7) << other;
  EXPECT_EQ(best_of_resumed({longer, "trainer.eval_interval=3"}), 1);
  EXPECT_EQ(best_of_resumed({longer, "trainer.eval_batches=4", "trainer.batch_size=1"}), 1);
}

TEST(Run, ResumingWithOtherDataOrAnotherModelIsRefused) {
  const Folder folder;
  const auto train = [&](const std::vector<std::string>& settings, bool resume) {
    return error_of([&] { TinyRun(settings).train(folder / "run", resume); });
  };
  write(folder / "a.txt", std::string(200, 'a') + std::string(200, 'b'));
  write(folder / "b.txt", std::string(200, 'a') + std::string(200, 'c'));
  const auto text = [&](const std::string& name) {
    return std::vector<std::string>{"data.source=file", "data.path=" + (folder / name).string(),
                                    "data.validation_fraction=0.1"};
  };
  // The tiny run's keys of tales are not keys of a text file.
  const auto file_run = [&](const std::string& name, bool resume) {
    return error_of([&] {
      ConfigFile file = ConfigFile::from_text(
          "model: {n_layers: 1, n_heads: 1, d_model: 8, block_size: 4}\n"
          "trainer: {max_steps: 2, batch_size: 2}\n",
          "file.yaml");
      for (const std::string& setting : text(name)) file.set(setting);
      RunConfig config = file.load<RunConfig>();
      prepare_data(config);
      run_training(config, {folder / "file"}, resume, true);
    });
  };
  EXPECT_EQ(file_run("a.txt", false), "no error");
  EXPECT_EQ(file_run("a.txt", true), "no error");
  EXPECT_NE(file_run("b.txt", true).find("other tokens"), std::string::npos) << file_run("b.txt", true);

  EXPECT_NE(train({}, true).find("nothing to resume"), std::string::npos);
  EXPECT_EQ(train({}, false), "no error");
  const std::string before = last_of(folder / "run");
  EXPECT_NE(train({}, false).find("exists; go on with it by --resume"), std::string::npos);
  const auto refused = [&](const std::string& setting, const std::string& why) {
    const std::string error = train({setting}, true);
    EXPECT_NE(error.find(why), std::string::npos) << setting << ": " << error;
  };
  refused("model.d_model=32", "model.d_model is 32, was 16");
  refused("model.n_layers=2", "model.n_layers is 2, was 1");
  refused("model.tie_embeddings=false", "model.tie_embeddings is false, was true");
  refused("trainer.dtype=f64", "a run of");
  EXPECT_EQ(last_of(folder / "run"), before);
}

// B52: steps count from 1 in every message, as in metrics.jsonl.
TEST(Run, AMessageNamesTheStepThatTheMetricsWouldHave) {
  const Folder folder;
  TinyRun run;
  run.task->losses = {3, NAN};
  EXPECT_NE(error_of([&] { run.train(folder / "evaluation"); }).find("at step 8 the validation loss is nan"),
            std::string::npos);
  EXPECT_EQ(metrics_of(folder / "evaluation").back()["step"], 8);
  EXPECT_EQ(contents(RunFolder{folder / "evaluation"}.metrics()).find("null"), std::string::npos) << "B53";
  TinyRun diverging({"schedule.learning_rate=1000", "schedule.min_learning_rate=1000",
                     "optimizer.clip_norm=0", "optimizer.weight_decay=0", "model.init_std=1e18",
                     "trainer.eval_interval=0"});
  const std::string error = error_of([&] { diverging.train(folder / "step"); });
  const auto lines = metrics_of(folder / "step");
  const int64_t logged = lines.empty() ? 0 : lines.back()["step"].get<int64_t>();
  EXPECT_NE(error.find(fmt::format("at step {} the loss is", logged + 1)), std::string::npos) << error;
}

TEST(Run, TwoRunsDoNotWriteToOneFolder) {
  const Folder folder;
  TinyRun().train(folder / "run");
  const std::string before = last_of(folder / "run");
  const FolderLock other(folder / "run");
  EXPECT_NE(error_of([&] {
              TinyRun({"trainer.max_steps=25"}).train(folder / "run", true);
            }).find("another process is writing"),
            std::string::npos);
  EXPECT_EQ(last_of(folder / "run"), before);
}

TEST(Run, WhatAKilledRunLeftUnfinishedIsRemoved) {
  const Folder folder;
  train_and_interrupt(TinyRun(), folder / "run", 9);
  const RunFolder run{folder / "run"};
  const std::vector<std::filesystem::path> files = {run.config(), run.metrics(), run.last(), run.best()};
  for (const auto& file : files) write(file.string() + ".tmp-12345", "half");
  write(run.path / "mine.tmp-12345", "not the run's");
  TinyRun().train(folder / "run", true);
  for (const auto& file : files) EXPECT_FALSE(std::filesystem::exists(file.string() + ".tmp-12345")) << file;
  EXPECT_TRUE(std::filesystem::exists(run.path / "mine.tmp-12345"));
}

// A model that sees its future is refused before training.
TEST(Run, AModelThatLeaksIsRefused) {
  const Folder folder;
  const ScopedKernels plant({}, DType::f32, [](KernelTable& table) {
    static const auto forward = table.attention.run;
    static const auto backward = table.attention_backward.run;
    const auto open = [](const kernel::Attention& a) {
      kernel::Attention all = a;
      all.causal = false;
      return all;
    };
    table.attention.run = [](const kernel::Attention& a) { forward(decltype(open){}(a)); };
    table.attention_backward.run = [](const kernel::Attention& a, const kernel::AttentionGradients& d) {
      backward(decltype(open){}(a), d);
    };
  });
  const std::string error = error_of([&] { TinyRun().train(folder / "run"); });
  EXPECT_NE(error.find("the model failed its audit: audit of the model: LEAKS ("), std::string::npos)
      << error;
  EXPECT_NE(error.find("position 0 depends on position 1, which comes later"), std::string::npos) << error;
  EXPECT_FALSE(std::filesystem::exists(folder / "run"));
  EXPECT_EQ(error_of([&] { TinyRun({"trainer.audit=false"}).train(folder / "run"); }), "no error");
}

// The mark depends on the logged losses, so a resumed run marks the same step as a run without interruption.
TEST(Run, TheFirstHalvingOfTheLossIsMarkedOnce) {
  const Folder folder;
  const std::vector<std::string> settings = {"trainer.mark_halving=true", "trainer.max_steps=40",
                                             "trainer.checkpoint_interval=1"};
  train_and_interrupt(TinyRun(settings), folder / "run", 9);
  const RunFolder run{folder / "run"};
  std::string high;
  for (const auto& line : metrics_of(folder / "run")) {
    auto changed = line;
    if (changed.contains("train_loss") && changed["step"] <= 10) changed["train_loss"] = 100.0;
    high += changed.dump() + "\n";
  }
  write(run.metrics(), high);
  TinyRun(settings).train(folder / "run", true);
  std::vector<int64_t> marked;
  for (const auto& line : metrics_of(folder / "run"))
    if (line.contains("halved")) {
      marked.push_back(line["step"]);
      EXPECT_EQ(line["halved"], 2);
    }
  EXPECT_EQ(marked, std::vector<int64_t>{11});
  TinyRun().train(folder / "plain");
  for (const auto& line : metrics_of(folder / "plain")) EXPECT_FALSE(line.contains("halved"));
}

// Samples are only for people to read; a run without them gives the same result.
TEST(Run, ASampleThatFailsCostsNothing) {
  const Folder folder;
  TinyRun plain({"trainer.sample_interval=5"}), failing({"trainer.sample_interval=5"});
  failing.task->sample_fails = true;
  plain.train(folder / "plain");
  failing.train(folder / "failing");
  EXPECT_EQ(last_of(folder / "failing"), last_of(folder / "plain"));
  EXPECT_EQ(series(folder / "failing", "train_loss"), series(folder / "plain", "train_loss"));
}

}  // namespace
}  // namespace bonsai::test
