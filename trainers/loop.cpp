#include "bonsai/trainers/loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <sstream>

#include "bonsai/framework/backend/backend.h"
#include "bonsai/framework/config/print.h"
#include "bonsai/framework/config/yaml.h"
#include "bonsai/framework/core/quote.h"
#include "bonsai/framework/io/file.h"
#include "bonsai/trainers/audit.h"
#include "bonsai/trainers/interrupt.h"
#include "bonsai/trainers/metrics.h"
#include "bonsai/trainers/progress.h"

namespace bonsai {
namespace {

struct Change {
  ConfigKey before, now;
  std::string text() const { return fmt::format("{} is {}, was {}", now.path, now.text(), before.text()); }
};

std::vector<Change> changes(const RunConfig& before, const RunConfig& now) {
  std::vector<Change> all;
  const std::vector<ConfigKey> old = config_keys(before);
  for (const ConfigKey& key : config_keys(now))
    for (const ConfigKey& other : old)
      if (other.path == key.path && other.value != key.value) all.push_back({other, key});
  return all;
}

// Only keys that do not affect a trained model may change: dropout and init_std, in any layer.
void check_same_model(const Checkpoint& checkpoint, const RunConfig& config) {
  for (const Change& change : changes(checkpoint.config(), config))
    if (const std::string name = change.now.name();
        change.now.path.starts_with("model.") && name != "dropout" && name != "init_std")
      throw ConfigError(
          fmt::format("{}: {}; a run goes on with its own model", checkpoint.file().string(), change.text()));
}

// Number of rows per evaluation; 0 means all. Losses over different rows must not be compared.
double evaluated_rows(const TrainerConfig& c) {
  return static_cast<double>(c.eval_batches) * static_cast<double>(c.batch_size);
}

// Comments in a run's config.yaml that record when it was resumed and what changed.
constexpr const char* kResumed = "# Resumed ";
std::string resumes_in(const std::filesystem::path& config) {
  std::string lines;
  std::istringstream file(std::filesystem::exists(config) ? read_file(config, kMaxConfigBytes) : "");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(kResumed)) lines += line + "\n";
  return lines;
}

class Run {
 public:
  Run(const RunConfig& config, const RunFolder& folder, bool resume, bool accept_new_data)
      : config_(config),
        folder_(claim(folder, resume)),
        lock_(folder_.path),
        accept_new_data_(accept_new_data),
        trainer_(config) {
    summary_.folder = folder_;
  }

  RunSummary run(bool resume, bool quiet) {
    try {
      begin(resume, quiet);
      train();
    } catch (const Error&) {
      check_folder();  // a removed folder is the cause of the error and is reported instead
      throw;
    }
    return summary_;
  }

 private:
  void begin(bool resume, bool quiet) {
    for (const auto& file : {folder_.config(), folder_.metrics(), folder_.last(), folder_.best()})
      remove_unfinished(file);
    const std::filesystem::path file = folder_.newest();
    const bool found = resume && !file.empty();
    const std::string from = found ? go_on_from(file) : "there is no checkpoint yet: starting with step 1";
    if (!found) record_config();  // before anything else, because it marks the folder as a run folder
    metrics_.emplace(folder_.metrics(), progress());
    line_.emplace(config_.trainer.max_steps, progress().step, config_.data->floor(), quiet);
    if (resume) line_->note(from);
    const auto& parameters = trainer_.arena().parameters();
    const auto decayed =
        std::count_if(parameters.begin(), parameters.end(), [](const Parameter* p) { return p->decay; });
    line_->note(
        fmt::format("{} parameters ({} tensors with weight decay, {} without), vocabulary {}, writing to {}",
                    trainer_.parameter_count(), decayed, static_cast<int64_t>(parameters.size()) - decayed,
                    config_.model.vocab_size, folder_.path.string()));
  }

  void train() {
    const TrainerConfig& c = config_.trainer;
    InterruptScope interrupt;
    try {
      finish_step();  // the pending rest of the last step of a resumed run
      for (bool first = true; !ended(); first = false) {
        const StepResult result = trainer_.step(progress().step, poll_);
        if (first) warn_of_unreached();
        ++progress().step;
        changed(Pending::evaluation);
        line_->step(progress().step, result);
        if (due(c.log_interval)) log(result);
        finish_step();
        if (due(c.checkpoint_interval)) save_last();
      }
    } catch (const Interrupted& stop) {
      summary_.interrupted_by = stop.signal;
    }
    if (!saved_) save_last();
    line_->note(fmt::format("{} after {} steps; checkpoint in {}",
                            summary_.interrupted_by ? "interrupted" : "done", progress().step,
                            folder_.last().parent_path().string()));
  }

  // Loads a checkpoint. Returns the message to print.
  std::string go_on_from(const std::filesystem::path& file) {
    const Checkpoint checkpoint(file);
    const RunConfig& before = checkpoint.config();
    check_same_model(checkpoint, config_);
    check(checkpoint.tokenizer()->serialise() == config_.data->tokenizer()->serialise(), "train",
          "{} was trained on other tokens than the data has now; the run cannot go on from it",
          file.string());
    const std::string other_data = checkpoint.data_changes(*config_.data);
    if (!other_data.empty() && !accept_new_data_)
      throw ConfigError(fmt::format(
          "{}: the data is not what the run was trained on: {}; --accept-new-data goes on with it",
          file.string(), other_data));
    checkpoint.load(trainer_);
    progress() = checkpoint.progress();
    saved_ = file == folder_.last();
    std::vector<std::string> told;
    for (const Change& change : changes(before, config_)) told.push_back(change.text());
    history_ = resumes_in(folder_.config()) + fmt::format("{}after step {}{}{}\n", kResumed, progress().step,
                                                          told.empty() ? "" : ": ", fmt::join(told, "; "));
    const bool other_rows = evaluated_rows(before.trainer) != evaluated_rows(config_.trainer);
    if (!other_data.empty() || other_rows) {
      progress() = {.step = progress().step, .pending = progress().pending};
      told.push_back(other_data.empty() ? "evaluations see other batches, so the best loss starts anew"
                                        : "new data, so the best loss starts anew: " + other_data);
    }
    return fmt::format("going on after step {}{}{}{}", progress().step,
                       saved_ ? "" : ", of the best checkpoint", told.empty() ? "" : "\n  ",
                       fmt::join(told, "\n  "));
  }

  // Records which part of the step is pending, and that it is not saved yet. The first call writes
  // config.yaml, so that a resumed run that does nothing leaves the file unchanged.
  void changed(Pending left) {
    progress().pending = left;
    saved_ = false;
    if (!recorded_) record_config();
  }

  void record_config() {
    replace_file(folder_.config(), kWrittenByTrain + history_ + dump_config(config_keys(config_)));
    recorded_ = true;
  }

  Progress& progress() { return summary_.progress; }

  bool last() const { return summary_.progress.step == config_.trainer.max_steps; }
  bool due(int64_t interval) const {
    return last() || (interval > 0 && summary_.progress.step % interval == 0);
  }
  bool ended() const {
    const int64_t patience = config_.trainer.early_stop;
    return summary_.progress.step >= config_.trainer.max_steps ||
           (patience > 0 && summary_.progress.evaluations_without_better >= patience);
  }

  // Evaluates and samples after the update of a step. Progress records the pending part, at which a run that
  // stops here is resumed.
  void finish_step() {
    const TrainerConfig& c = config_.trainer;
    if (progress().pending == Pending::evaluation) {
      const bool best = due(c.eval_interval) && evaluate();
      changed(Pending::sample);
      if (best) save(folder_.best());
    }
    if (progress().pending == Pending::sample) {
      if (c.sample_interval > 0 && due(c.sample_interval)) sample();
      changed(Pending::full_evaluation);
    }
    if (progress().pending == Pending::full_evaluation) {
      if (c.eval_batches > 0 && ended()) evaluate_all();
      changed(Pending::nothing);
    }
  }

  void log(const StepResult& r) {
    metrics_->write({{"step", progress().step},
                     {"train_loss", r.loss},
                     {"lr", r.learning_rate},
                     {"grad_norm", r.gradient_norm},
                     {"tokens_per_s", std::round(line_->tokens_per_second())}});
    const int64_t window = config_.trainer.halving_window();
    if (const int64_t step = config_.trainer.mark_halving ? metrics_->halving(window) : 0; step > 0) {
      metrics_->write({{"step", step}, {"halved", window}});
      line_->note(fmt::format("step {}: the loss has halved within {} steps", step, window));
    }
  }

  // Evaluates the first `max_batches` batches, or all if it is 0. `suffix` is added to the keys in
  // metrics.jsonl, `over` to the message.
  double evaluate_over(int64_t max_batches, const std::string& suffix, const std::string& over) {
    const Evaluation e =
        config_.data->evaluate(trainer_.model(), config_.trainer.batch_size, max_batches, poll_);
    check(std::isfinite(e.loss), "train",
          "at step {} the validation loss is {}; the training has diverged, and no checkpoint is written",
          progress().step, std::isnan(e.loss) ? NAN : e.loss);
    nlohmann::ordered_json object = {{"step", progress().step}, {"val_loss" + suffix, e.loss}};
    std::string text = fmt::format("step {}: validation loss{} {:.4f}", progress().step, over, e.loss);
    if (!std::isnan(e.exact_match)) {
      object["exact_match" + suffix] = e.exact_match;
      text += fmt::format(", exact match {:.4f}", e.exact_match);
    }
    metrics_->write(object);
    line_->note(text);
    return e.loss;
  }

  // Returns whether the loss is the best so far. Every evaluation takes the same batches.
  bool evaluate() {
    const double loss = evaluate_over(config_.trainer.eval_batches, "", "");
    if (loss < progress().best_loss) {
      progress().best_loss = loss;
      progress().evaluations_without_better = 0;
      return true;
    }
    ++progress().evaluations_without_better;
    return false;
  }

  void evaluate_all() { evaluate_over(0, "_full", " over all data"); }

  void sample() {
    std::string text;
    try {
      text = config_.data->sample(trainer_.model(), static_cast<uint64_t>(config_.trainer.seed), poll_);
    } catch (const Error& e) {  // the run does not depend on samples
      return line_->note(fmt::format("no sample: {}", e.what()));
    }
    metrics_->write({{"step", progress().step}, {"sample", text}});
    line_->note("  | " + escaped(text.substr(0, text.find('\n')), text.size()));
  }

  void save_last() {
    save(folder_.last());
    saved_ = true;
  }

  void save(const std::filesystem::path& file) {
    check_folder();
    save_checkpoint(file, trainer_, progress());
  }

  void check_folder() const {
    check(
        lock_.is_at(folder_.path), "train",
        "{} was removed or renamed while the run was writing to it; steps after its last checkpoint are lost",
        folder_.path.string());
  }

  void warn_of_unreached() {
    std::vector<std::string> names;
    for (const Parameter* p : trainer_.arena().parameters())
      if (p->trainable && p->contributions == 0) names.push_back(p->path);
    if (!names.empty())
      line_->warn(fmt::format("no gradient reaches {}; nothing but weight decay will change it",
                              fmt::join(names, ", ")));
  }

  // Called between units of work. Checks for signals and, once per second, whether the folder still exists.
  void poll() {
    if (const int signal = InterruptScope::signal()) throw Interrupted{signal};
    const auto now = std::chrono::steady_clock::now();
    if (now - looked_ < std::chrono::seconds(1)) return;
    looked_ = now;
    check_folder();
  }

  RunConfig config_;
  RunFolder folder_;
  FolderLock lock_;
  bool accept_new_data_;
  Trainer trainer_;
  RunSummary summary_;
  std::string history_;    // comments of config.yaml about resumes
  bool recorded_ = false;  // whether config.yaml has this config
  bool saved_ = false;     // whether the last checkpoint has the current state
  std::optional<Metrics> metrics_;
  std::optional<ProgressLine> line_;
  std::chrono::steady_clock::time_point looked_;
  const Poll poll_ = [this] { poll(); };
};

}  // namespace

void prepare_data(RunConfig& config, std::shared_ptr<Tokenizer> tokenizer) {
  try {
    config.data->prepare(config.model.block_size, static_cast<uint64_t>(config.trainer.seed),
                         std::move(tokenizer));
  } catch (const Error& e) {
    throw ConfigError(e.what());
  }
  const int64_t needed = config.data->vocab_size();
  if (config.model.vocab_size == 0) config.model.vocab_size = needed;
  if (config.model.vocab_size != needed)
    throw ConfigError(
        fmt::format("model.vocab_size is {}, but the data has {} tokens; leave it out to take theirs",
                    config.model.vocab_size, needed));
}

RunSummary run_training(const RunConfig& config, const RunFolder& folder, bool resume, bool quiet,
                        bool accept_new_data) {
  check_run_folder(folder, resume);
  open_device(config.device.device());
  if (config.trainer.audit) {
    const std::vector<AuditReport> reports = audit_model("of the model", config.model, config.trainer.type(),
                                                         AuditExtent::quick, config.device.device());
    check(passed(reports), "train",
          "the model failed its audit: {}trainer.audit=false would skip this",
          text(reports));
  }
  return Run(config, folder, resume, accept_new_data).run(resume, quiet);
}

}  // namespace bonsai
