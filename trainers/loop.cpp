#include "trainers/loop.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>

#include "framework/config/print.h"
#include "framework/config/yaml.h"
#include "framework/io/file.h"
#include "trainers/progress.h"

namespace bonsai {
namespace {

volatile std::sig_atomic_t interrupts = 0;

// The first SIGINT asks the loop to save and stop; the second stops at once.
class InterruptScope {
 public:
  InterruptScope() {
    interrupts = 0;
    struct sigaction action {};
    action.sa_handler = [](int) {
      if (interrupts) _exit(130);
      interrupts = 1;
    };
    sigaction(SIGINT, &action, &previous_);
  }
  ~InterruptScope() { sigaction(SIGINT, &previous_, nullptr); }

 private:
  struct sigaction previous_ {};
};

void replace_text(const std::filesystem::path& path, const std::string& text) {
  ReplacementFile file(path);
  file.write(text.data(), text.size());
  file.commit();
}

// metrics.jsonl, one object a line. A resumed run drops what came after its checkpoint.
class Metrics {
 public:
  Metrics(const std::filesystem::path& path, int64_t kept_steps) : path_(path) {
    std::string kept;
    std::ifstream old(path);
    for (std::string line; std::getline(old, line);) {
      const auto object = nlohmann::json::parse(line, nullptr, false);
      const bool counts = object.is_object() && object.contains("step") && object["step"].is_number();
      if (counts && object["step"].get<double>() <= static_cast<double>(kept_steps)) kept += line + "\n";
    }
    old.close();
    replace_text(path, kept);
    file_.open(path, std::ios::app);
  }

  void write(const nlohmann::ordered_json& object) {
    file_ << object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n" << std::flush;
    check(file_.good(), path_.string(), "could not be written; is the disk full?");
  }

 private:
  std::filesystem::path path_;
  std::ofstream file_;
};

class Run {
 public:
  Run(const RunConfig& config, const RunFolder& folder, bool resume, bool quiet)
      : config_(config), folder_(folder), lock_(locked(folder, resume)), trainer_(config) {
    for (const auto& file : {folder.config(), folder.metrics(), folder.last(), folder.best()}) remove_unfinished(file);
    if (resume && std::filesystem::exists(folder.last())) {
      const Checkpoint checkpoint(folder.last());
      check(checkpoint.tokenizer()->serialise() == config.data->tokenizer()->serialise(), "train",
            "{} was trained on other tokens than the data has now; the run cannot go on from it", folder.last().string());
      checkpoint.load(trainer_);
      summary_.progress = checkpoint.progress();
      saved_step_ = progress().step;
    }
    replace_text(folder.config(), dump_config(config_keys(config)));
    metrics_.emplace(folder.metrics(), progress().step);
    line_.emplace(config.trainer.max_steps, progress().step, config.data->floor(), quiet);
    if (resume && progress().step > 0) line_->note(fmt::format("going on after step {}", progress().step));
    if (resume && progress().step == 0) line_->note("there is no checkpoint yet: starting from step 0");
  }

  RunSummary run() {
    const TrainerConfig& c = config_.trainer;
    InterruptScope interrupt;
    const auto& parameters = trainer_.arena().parameters();
    const auto decayed = std::count_if(parameters.begin(), parameters.end(), [](const Parameter* p) { return p->decay; });
    line_->note(fmt::format("{} parameters ({} tensors with weight decay, {} without), vocabulary {}, writing to {}",
                            trainer_.parameter_count(), decayed, static_cast<int64_t>(parameters.size()) - decayed,
                            config_.model.vocab_size, folder_.path.string()));
    bool better = c.early_stop == 0 || progress().evaluations_without_better < c.early_stop;
    while (progress().step < c.max_steps && better && !interrupts) {
      const StepResult result = trainer_.step(progress().step);
      const int64_t done = ++progress().step;
      line_->step(done, result);
      if (done % c.log_interval == 0 || done == c.max_steps) log(result);
      const bool last = done == c.max_steps;
      if (last || (c.eval_interval > 0 && done % c.eval_interval == 0)) better = evaluate();
      if (last || (c.checkpoint_interval > 0 && done % c.checkpoint_interval == 0)) save_last();
      if (c.sample_interval > 0 && (last || done % c.sample_interval == 0)) sample();  // after what could be lost
    }
    if (saved_step_ != progress().step) save_last();
    summary_.interrupted = interrupts;
    line_->note(fmt::format("{} after {} steps; checkpoint in {}", interrupts ? "interrupted" : "done", progress().step,
                            folder_.last().parent_path().string()));
    return summary_;
  }

 private:
  // Of two runs that begin at once in the same folder, one makes it and the other is refused.
  static FolderLock locked(const RunFolder& folder, bool resume) {
    if (!std::filesystem::create_directories(folder.path)) check_run_folder(folder, resume);
    return FolderLock(folder.path);
  }

  Progress& progress() { return summary_.progress; }

  void log(const StepResult& r) {
    metrics_->write({{"step", progress().step},
                     {"train_loss", r.loss},
                     {"lr", r.learning_rate},
                     {"grad_norm", r.gradient_norm},
                     {"tokens_per_s", std::round(line_->tokens_per_second())}});
  }

  // False where the run should stop early.
  bool evaluate() {
    const TrainerConfig& c = config_.trainer;
    const bool last = progress().step == c.max_steps;
    const Evaluation e = config_.data->evaluate(trainer_.model(), c.batch_size, last ? 0 : c.eval_batches);
    summary_.evaluation = e;
    nlohmann::ordered_json object = {{"step", progress().step}, {"val_loss", e.loss}};
    std::string text = fmt::format("step {}: validation loss {:.4f}", progress().step, e.loss);
    if (!std::isnan(e.exact_match)) {
      object["exact_match"] = e.exact_match;
      text += fmt::format(", exact match {:.4f}", e.exact_match);
    }
    metrics_->write(object);
    line_->note(text);
    if (e.loss < progress().best_loss) {
      progress().best_loss = e.loss;
      progress().evaluations_without_better = 0;
      save(folder_.best());
      return true;
    }
    return ++progress().evaluations_without_better < c.early_stop || c.early_stop == 0;
  }

  void sample() {
    const std::string text = config_.data->sample(trainer_.model(), static_cast<uint64_t>(config_.trainer.seed));
    metrics_->write({{"step", progress().step}, {"sample", text}});
    line_->note("  | " + text.substr(0, text.find('\n')));
  }

  void save_last() {
    save(folder_.last());
    saved_step_ = progress().step;
  }

  void save(const std::filesystem::path& file) { save_checkpoint(file, trainer_, progress()); }

  RunConfig config_;
  RunFolder folder_;
  FolderLock lock_;
  Trainer trainer_;
  RunSummary summary_;
  int64_t saved_step_ = -1;
  std::optional<Metrics> metrics_;
  std::optional<ProgressLine> line_;
};

// Of a run that was killed at its very start there is at most a part of config.yaml.
bool is_run(const RunFolder& folder) {
  if (!std::filesystem::is_directory(folder.path)) return false;
  if (std::filesystem::exists(folder.last())) return true;
  const std::string config = folder.config().filename().string();
  const std::filesystem::directory_iterator entries(folder.path), end;
  const auto is_config = [&](const auto& entry) { return entry.path().filename().string().starts_with(config); };
  return entries == end || std::any_of(entries, end, is_config);
}

}  // namespace

void prepare_data(RunConfig& config, std::shared_ptr<Tokenizer> tokenizer) {
  try {
    config.data->prepare(config.model.block_size, static_cast<uint64_t>(config.trainer.seed), std::move(tokenizer));
  } catch (const Error& e) {
    throw ConfigError(e.what());
  }
  const int64_t needed = config.data->vocab_size();
  if (config.model.vocab_size == 0) config.model.vocab_size = needed;
  if (config.model.vocab_size != needed)
    throw ConfigError(fmt::format("model.vocab_size is {}, but the data has {} tokens; leave it out to take theirs",
                                  config.model.vocab_size, needed));
}

std::filesystem::path free_run_folder(const std::string& name) {
  for (int n = 1;; ++n)
    if (const std::filesystem::path path = "runs/" + name + "-" + std::to_string(n); !std::filesystem::exists(path)) return path;
}

void check_run_folder(const RunFolder& folder, bool resume) {
  if (std::filesystem::exists(folder.path) && !resume)
    throw ConfigError(fmt::format("{} exists; give --resume to go on with it, or another --out", folder.path.string()));
  if (resume && !std::filesystem::exists(folder.path))
    throw ConfigError(fmt::format("{} does not exist, so there is nothing to resume", folder.path.string()));
  if (resume && !is_run(folder)) throw ConfigError(fmt::format("{} is no run folder", folder.path.string()));
}

RunSummary run_training(const RunConfig& config, const RunFolder& folder, bool resume, bool quiet) {
  check_run_folder(folder, resume);
  return Run(config, folder, resume, quiet).run();
}

}  // namespace bonsai
