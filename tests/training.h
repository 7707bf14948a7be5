// Helpers of the tests of whole runs: a run that takes a second, and a task that a test can interrupt.
#pragma once

#include <fstream>
#include <sstream>

#include "bonsai/framework/config/yaml.h"
#include "bonsai/tests/folder.h"
#include "bonsai/tests/support.h"
#include "bonsai/trainers/loop.h"

namespace bonsai::test {

inline std::string contents(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  EXPECT_TRUE(in.good()) << file;
  std::ostringstream all;
  all << in.rdbuf();
  return all.str();
}

inline void write(const std::filesystem::path& file, const std::string& text) {
  std::ofstream(file, std::ios::binary) << text;
}

constexpr const char* kTinyRun = R"(task: language_model
model: {n_layers: 1, n_heads: 2, d_model: 16, block_size: 8, dropout: 0.2}
data: {source: tales, characters: 2000}
trainer: {max_steps: 20, batch_size: 2, gradient_accumulation: 2, eval_interval: 4, eval_batches: 2,
          checkpoint_interval: 5, log_interval: 1}
schedule: {warmup_steps: 3, learning_rate: 1e-2, min_learning_rate: 1e-3}
)";

// The language model task, with hooks: a test is told of each batch and may set the losses of evaluations.
class WatchedTask final : public Task {
 public:
  explicit WatchedTask(std::shared_ptr<Task> task) : task_(std::move(task)) {}
  std::function<void(const BatchIndex&)> on_batch;
  std::function<void(const std::string& work, int unit)> on_unit;
  std::vector<double> losses;  // of the evaluations, in order
  bool part_and_whole = false;  // losses over some batches: 5, 4, 3, ...; over all: 9
  bool sample_fails = false;
  std::shared_ptr<Tokenizer> other_tokenizer;   // instead of the task's
  std::optional<DataIdentity> other_identity;

  std::string name() const override { return task_->name(); }
  void visit(Visitor& v) override { task_->visit(v); }
  void resolve(const std::filesystem::path& folder) override { task_->resolve(folder); }
  void prepare(int64_t block_size, uint64_t seed, std::shared_ptr<Tokenizer> tokenizer) override {
    task_->prepare(block_size, seed, std::move(tokenizer));
  }
  DataIdentity identity() const override { return other_identity.value_or(task_->identity()); }
  int64_t vocab_size() const override { return task_->vocab_size(); }
  std::shared_ptr<Tokenizer> tokenizer() const override {
    return other_tokenizer ? other_tokenizer : task_->tokenizer();
  }
  Batch batch(const BatchIndex& index, int64_t batch_size) const override {
    if (on_batch) on_batch(index);
    return task_->batch(index, batch_size);
  }
  Evaluation evaluate(Model& model, int64_t batch_size, int64_t max_batches,
                      const Poll& poll) const override {
    if (evaluations_ < losses.size()) return {.loss = losses[evaluations_++]};
    if (part_and_whole) return {.loss = max_batches == 0 ? 9.0 : static_cast<double>(5 - evaluations_++ % 5)};
    return task_->evaluate(model, batch_size, max_batches,
                           watched(max_batches > 0 ? "evaluation" : "full evaluation", poll));
  }
  std::string sample(Model& model, uint64_t seed, const Poll& poll) const override {
    if (sample_fails) throw Error("nothing can be written");
    return task_->sample(model, seed, watched("sample", poll));
  }

 private:
  Poll watched(const std::string& work, const Poll& poll) const {
    return [this, work, &poll, unit = 0]() mutable {
      if (on_unit) on_unit(work, unit++);
      poll();
    };
  }

  std::shared_ptr<Task> task_;
  mutable size_t evaluations_ = 0;
};

inline RunConfig load_run(ConfigFile file, const std::vector<std::string>& settings = {}) {
  for (const std::string& setting : settings) file.set(setting);
  return file.load<RunConfig>();
}

// A config of configs/bench, such as "char", with its data generated.
inline RunConfig bench_run(const std::string& name, const std::vector<std::string>& settings = {}) {
  RunConfig config =
      load_run(ConfigFile(std::filesystem::path(BONSAI_SOURCE_DIR "/configs/bench") / (name + ".yaml")),
               settings);
  prepare_data(config);
  return config;
}

struct TinyRun {
  explicit TinyRun(const std::vector<std::string>& settings = {})
      : config(load_run(ConfigFile::from_text(kTinyRun, "tiny.yaml"), settings)) {
    config.data = task = std::make_shared<WatchedTask>(config.data);
    prepare_data(config);
  }
  RunSummary train(const std::filesystem::path& folder, bool resume = false) const {
    return run_training(config, {folder}, resume, true);
  }

  std::shared_ptr<WatchedTask> task;
  RunConfig config;
};

}  // namespace bonsai::test
