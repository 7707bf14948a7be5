#include "trainers/loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "framework/backend/backend.h"
#include "framework/config/print.h"
#include "framework/config/yaml.h"
#include "framework/io/file.h"
#include "trainers/audit.h"
#include "trainers/interrupt.h"
#include "trainers/progress.h"

namespace bonsai {
namespace {

void replace_text(const std::filesystem::path& path, const std::string& text) {
  ReplacementFile file(path);
  file.write(text.data(), text.size());
  file.commit();
}

// The first line of a run's config.yaml: what tells it from one that a person wrote.
const std::string kWrittenByTrain = "# What this run uses, defaults included. Written by bonsai train.\n";

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

// What a trained model no longer depends on may change, in any of its layers.
void check_same_model(const Checkpoint& checkpoint, const RunConfig& config) {
  for (const Change& change : changes(checkpoint.config(), config))
    if (const std::string name = change.now.name();
        change.now.path.starts_with("model.") && name != "dropout" && name != "deviation")
      throw ConfigError(
          fmt::format("{}: {}; a run goes on with its own model", checkpoint.file().string(), change.text()));
}

// metrics.jsonl, one object a line. A resumed run drops what came after its checkpoint.
class Metrics {
 public:
  Metrics(const std::filesystem::path& path, const Progress& progress) : path_(path) {
    std::string kept;
    std::ifstream old(path);
    check(old.good() || !std::filesystem::exists(path), path.string(),
          "cannot be read; a run goes on with its lines");
    for (std::string line; std::getline(old, line);) {
      const auto object = nlohmann::json::parse(line, nullptr, false);
      if (!is_kept(object, progress)) continue;
      kept += line + "\n";
      note(object);
    }
    old.close();
    replace_text(path, kept);
    file_.open(path, std::ios::app);
  }

  // The first step that was logged with at most half the loss of `window` steps before; 0 where it is not this one,
  // or another was before.
  int64_t halving(int64_t window) const {
    if (marked_ || losses_.size() < 2) return 0;
    const auto& [step, loss] = losses_.back();
    const auto before = std::find_if(losses_.rbegin(), losses_.rend(), [&, step = step](const auto& l) { return l.first <= step - window; });
    return before != losses_.rend() && loss <= before->second / 2 ? step : 0;
  }

  void write(const nlohmann::ordered_json& object) {
    note(object);
    if (!std::filesystem::exists(path_)) file_ = std::ofstream(path_, std::ios::app);  // it was moved away
    file_ << object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n" << std::flush;
    check(file_.good(), path_.string(), "could not be written; is the disk full?");
  }

 private:
  // Not what came after the checkpoint, nor what the run will write again.
  static bool is_kept(const nlohmann::json& object, const Progress& progress) {
    if (!object.is_object() || !object.contains("step") || !object["step"].is_number()) return false;
    const double step = object["step"], last = static_cast<double>(progress.step);
    const bool again = (progress.pending == Pending::evaluation && object.contains("val_loss")) ||
                       (progress.pending >= Pending::sample && object.contains("sample"));
    return step < last || (step == last && !again);
  }

  void note(const nlohmann::json& object) {
    marked_ |= object.contains("halved");
    if (object.contains("train_loss") && object["train_loss"].is_number())
      losses_.emplace_back(object["step"].get<int64_t>(), object["train_loss"].get<double>());
  }

  std::filesystem::path path_;
  std::ofstream file_;
  std::vector<std::pair<int64_t, double>> losses_;  // by step
  bool marked_ = false;
};

class Run {
 public:
  Run(const RunConfig& config, const RunFolder& folder, bool resume, bool quiet, bool accept_new_data)
      : config_(config), folder_(folder), lock_(locked(folder, resume)), trainer_(config) {
    for (const auto& file : {folder.config(), folder.metrics(), folder.last(), folder.best()})
      remove_unfinished(file);
    std::string from = "there is no checkpoint yet: starting from step 0";
    if (const std::filesystem::path file = folder.newest(); resume && !file.empty()) {
      const Checkpoint checkpoint(file);
      check_same_model(checkpoint, config);
      check(checkpoint.tokenizer()->serialise() == config.data->tokenizer()->serialise(), "train",
            "{} was trained on other tokens than the data has now; the run cannot go on from it",
            file.string());
      const std::string other_data = checkpoint.data_changes(*config.data);
      if (!other_data.empty() && !accept_new_data)
        throw ConfigError(fmt::format("{}: the data is not what the run was trained on: {}; --accept-new-data goes on with it",
                                      file.string(), other_data));
      checkpoint.load(trainer_);
      summary_.progress = checkpoint.progress();
      saved_ = file == folder.last();
      from = fmt::format("going on after step {}{}", progress().step,
                         file == folder.last() ? "" : ", of the best checkpoint");
      for (const Change& change : changes(checkpoint.config(), config)) from += "\n  " + change.text();
      if (!other_data.empty()) {
        progress() = {.step = progress().step, .pending = progress().pending};
        from += "\n  new data, so the best loss starts anew: " + other_data;
      }
    }
    replace_text(folder.config(), kWrittenByTrain + dump_config(config_keys(config)));
    metrics_.emplace(folder.metrics(), progress());
    line_.emplace(config.trainer.max_steps, progress().step, config.data->floor(), quiet);
    if (resume) line_->note(from);
  }

  RunSummary run() {
    const TrainerConfig& c = config_.trainer;
    InterruptScope interrupt;
    const auto& parameters = trainer_.arena().parameters();
    const auto decayed =
        std::count_if(parameters.begin(), parameters.end(), [](const Parameter* p) { return p->decay; });
    line_->note(
        fmt::format("{} parameters ({} tensors with weight decay, {} without), vocabulary {}, writing to {}",
                    trainer_.parameter_count(), decayed, static_cast<int64_t>(parameters.size()) - decayed,
                    config_.model.vocab_size, folder_.path.string()));
    try {
      finish_step();  // what the run left undone when it stopped
      while (!ended()) {
        const StepResult result = trainer_.step(progress().step, poll_);
        ++progress().step;
        progress().pending = Pending::evaluation;
        saved_ = false;
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
    return summary_;
  }

 private:
  // Of two runs that begin at once in the same folder, one makes it and the other is refused.
  static FolderLock locked(const RunFolder& folder, bool resume) {
    if (!std::filesystem::create_directories(folder.path)) check_run_folder(folder, resume);
    return FolderLock(folder.path);
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

  // What follows the update of a step. Progress keeps what is left of it: a run that stops here goes on here.
  void finish_step() {
    const TrainerConfig& c = config_.trainer;
    Pending& left = progress().pending;
    if (left == Pending::evaluation) {
      const bool best = due(c.eval_interval) && evaluate();
      left = Pending::sample;
      saved_ = false;
      if (best) save(folder_.best());
    }
    if (left == Pending::sample) {
      if (c.sample_interval > 0 && due(c.sample_interval)) sample();
      left = Pending::nothing;
      saved_ = false;
    }
  }

  void log(const StepResult& r) {
    metrics_->write({{"step", progress().step},
                     {"train_loss", r.loss},
                     {"lr", r.learning_rate},
                     {"grad_norm", r.gradient_norm},
                     {"tokens_per_s", std::round(line_->tokens_per_second())}});
    const int64_t window = std::max<int64_t>(1, config_.trainer.max_steps / 20);
    if (const int64_t step = config_.trainer.mark_halving ? metrics_->halving(window) : 0; step > 0) {
      metrics_->write({{"step", step}, {"halved", window}});
      line_->note(fmt::format("step {}: the loss has halved within {} steps", step, window));
    }
  }

  // Whether the loss is the best so far.
  bool evaluate() {
    const TrainerConfig& c = config_.trainer;
    const Evaluation e =
        config_.data->evaluate(trainer_.model(), c.batch_size, last() ? 0 : c.eval_batches, poll_);
    summary_.evaluation = e;
    nlohmann::ordered_json object = {{"step", progress().step}, {"val_loss", e.loss}};
    std::string text = fmt::format("step {}: validation loss {:.4f}", progress().step, e.loss);
    if (!std::isnan(e.exact_match)) {
      object["exact_match"] = e.exact_match;
      text += fmt::format(", exact match {:.4f}", e.exact_match);
    }
    metrics_->write(object);
    line_->note(text);
    check(std::isfinite(e.loss), "train", "at step {} the validation loss is {}; the training has diverged, and no checkpoint is written", progress().step,
          std::isnan(e.loss) ? NAN : e.loss);
    if (e.loss < progress().best_loss) {
      progress().best_loss = e.loss;
      progress().evaluations_without_better = 0;
      return true;
    }
    ++progress().evaluations_without_better;
    return false;
  }

  void sample() {
    std::string text;
    try {
      text = config_.data->sample(trainer_.model(), static_cast<uint64_t>(config_.trainer.seed), poll_);
    } catch (const Error& e) {  // nothing depends on it
      return line_->note(fmt::format("no sample: {}", e.what()));
    }
    metrics_->write({{"step", progress().step}, {"sample", text}});
    line_->note("  | " + text.substr(0, text.find('\n')));
  }

  void save_last() {
    save(folder_.last());
    saved_ = true;
  }

  void save(const std::filesystem::path& file) { save_checkpoint(file, trainer_, progress()); }

  RunConfig config_;
  RunFolder folder_;
  FolderLock lock_;
  Trainer trainer_;
  RunSummary summary_;
  bool saved_ = false;  // whether the last checkpoint has all of this
  std::optional<Metrics> metrics_;
  std::optional<ProgressLine> line_;

  // The one place that looks, between units of work, at what happens outside.
  Poll poll_ = [] {
    if (const int signal = InterruptScope::signal()) throw Interrupted{signal};
  };
};

// Of a run that was killed at its very start there may be nothing yet, or a part of config.yaml.
bool is_run(const RunFolder& folder) {
  if (!std::filesystem::is_directory(folder.path)) return false;
  if (std::filesystem::exists(folder.last()) || std::filesystem::exists(folder.best())) return true;
  if (std::filesystem::exists(folder.config())) {
    std::string first;
    std::ifstream file(folder.config());
    std::getline(file, first);
    return first + "\n" == kWrittenByTrain;
  }
  const std::filesystem::directory_iterator entries(folder.path), end;
  return std::all_of(entries, end, [&](const auto& entry) {
    return entry.path().filename().string().starts_with("config.yaml.tmp-");
  });
}

}  // namespace

void prepare_data(RunConfig& config, std::shared_ptr<Tokenizer> tokenizer) {
  try {
    config.data->prepare(config.model.block_size, static_cast<uint64_t>(config.trainer.seed),
                         std::move(tokenizer));
  } catch (const Error& e) {
    throw ConfigError(e.what());
  }
  if (config.data->has_source() != (config.model.n_encoder_layers > 0))
    throw ConfigError(fmt::format(
        "model.n_encoder_layers is {}, but the task {} has {}", config.model.n_encoder_layers, config.task,
        config.data->has_source() ? "a source, which needs an encoder" : "no source for an encoder"));
  const int64_t needed = config.data->vocab_size();
  if (config.model.vocab_size == 0) config.model.vocab_size = needed;
  if (config.model.vocab_size != needed)
    throw ConfigError(
        fmt::format("model.vocab_size is {}, but the data has {} tokens; leave it out to take theirs",
                    config.model.vocab_size, needed));
}

std::filesystem::path RunFolder::newest() const {
  for (const auto& file : {last(), best()})
    if (std::filesystem::exists(file)) return file;
  return {};
}

std::filesystem::path free_run_folder(const std::string& name) {
  for (int n = 1;; ++n)
    if (const std::filesystem::path path = "runs/" + name + "-" + std::to_string(n);
        !std::filesystem::exists(path))
      return path;
}

void check_run_folder(const RunFolder& folder, bool resume) {
  if (std::filesystem::exists(folder.path) && !resume)
    throw ConfigError(
        fmt::format("{} exists; give --resume to go on with it, or another --out", folder.path.string()));
  if (resume && !std::filesystem::exists(folder.path))
    throw ConfigError(fmt::format("{} does not exist, so there is nothing to resume", folder.path.string()));
  if (resume && !is_run(folder)) throw ConfigError(fmt::format("{} is no run folder", folder.path.string()));
}

RunSummary run_training(const RunConfig& config, const RunFolder& folder, bool resume, bool quiet,
                        bool accept_new_data) {
  check_run_folder(folder, resume);
  open_device(config.device.device());
  if (config.trainer.audit) {
    const std::vector<AuditReport> reports = audit_model("of the model", config.model, config.trainer.type(), AuditExtent::quick,
                                                         config.device.device());
    check(passed(reports), "train",
          "the model failed its audit: {}trainer.audit=false would skip this",
          text(reports));
  }
  return Run(config, folder, resume, quiet, accept_new_data).run();
}

}  // namespace bonsai
