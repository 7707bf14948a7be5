// The config of a run, with its defaults. The keys of models are in layers/model.
#pragma once

#include <algorithm>
#include <memory>
#include <string>

#include "bonsai/framework/config/visit.h"
#include "bonsai/layers/model/model.h"
#include "bonsai/trainers/optimizer/rule.h"
#include "bonsai/trainers/schedule/schedule.h"
#include "bonsai/trainers/task/task.h"

namespace bonsai {

struct TrainerConfig {
  int64_t max_steps = 1000;
  int64_t batch_size = 16;
  int64_t gradient_accumulation = 1;
  int64_t eval_interval = 100;
  int64_t eval_batches = 0;
  int64_t checkpoint_interval = 100;
  int64_t log_interval = 10;
  int64_t sample_interval = 0;
  int64_t early_stop = 0;
  int64_t seed = 1;
  std::string dtype = "f32";
  bool audit = true;
  bool mark_halving = false;
  bool trace_nonfinite = false;
  DType type() const { return dtype == "f64" ? DType::f64 : DType::f32; }
  // Number of steps within which the loss must halve to be marked.
  int64_t halving_window() const { return std::max<int64_t>(1, max_steps / 20); }
  template <class V>
  void visit(V& v) {
    v("max_steps", max_steps, "number of optimizer steps", at_least(0));
    v("batch_size", batch_size, "number of sequences per micro-batch", at_least(1));
    v("gradient_accumulation", gradient_accumulation,
      "number of micro-batches per step; the loss is the mean over their tokens", between(1, 65535));
    v.renamed("accumulation", "gradient_accumulation");
    v("eval_interval", eval_interval, "steps between evaluations; 0 evaluates only at the end", at_least(0));
    v("eval_batches", eval_batches,
      "number of batches per evaluation, always the same ones; 0 takes all, otherwise val_loss_full over all "
      "is added at the end",
      at_least(0));
    v("checkpoint_interval", checkpoint_interval, "steps between checkpoints; 0 saves only at the end",
      at_least(0));
    v("log_interval", log_interval, "steps between lines of metrics.jsonl", at_least(1));
    v("sample_interval", sample_interval, "steps between samples of text; 0: no samples", at_least(0));
    v("early_stop", early_stop,
      "stops after this many evaluations in a row without a better val_loss; 0 disables it", at_least(0));
    v("seed", seed, "seed of weights, data order and dropout", at_least(0));
    v("audit", audit, "whether to audit the model for leaks from later positions before training");
    v("mark_halving", mark_halving,
      "whether to mark the first step at which the loss has halved within 5 % of the steps");
    v("trace_nonfinite", trace_nonfinite, "whether to check every op for values that are not finite; slow");
    v("dtype", dtype, "data type of parameters and activations", OneOf{{"f32", "f64"}});
  }
};

struct DeviceConfig {
  std::string type = "cpu";
  int64_t threads = 0;
  int64_t index = 0;
  bool tf32 = false;
  Device device() const {
    return type == "cuda" ? Device{Device::cuda, static_cast<int8_t>(index)} : Device{};
  }
  template <class V>
  void visit(V& v) {
    v("type", type, "type of the device", OneOf{{"cpu", "cuda"}});
    v("threads", threads, "number of CPU threads; 0 chooses one per processor that the process may use",
      between(0, 1024));
    v("index", index, "index of the CUDA device", between(0, 127));
    v("tf32", tf32, "whether a CUDA device may round the operands of f32 products to 10 bits; faster");
  }
};

struct RunConfig {
  std::string task = TaskKind::standard;
  ModelConfig model;
  std::shared_ptr<Task> data;  // the task, which has the keys of the section `data`
  TrainerConfig trainer;
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  DeviceConfig device;

  template <class V>
  void visit(V& v) {
    v("task", task, "the training task", OneOf{registry<TaskKind>().names()});
    if (const auto part = registry<TaskKind>().config(task); part && (!data || data->name() != task))
      data = part->make();
    v.section("model", model, "architecture and size of the model");
    if (data) v.section("data", *data, "the data of the task");
    v.section("trainer", trainer, "the training loop");
    v.section("optimizer", optimizer, "update rule and gradient clipping");
    ScheduleConfig::Keys of_schedule{schedule, trainer.max_steps};
    v.section("schedule", of_schedule, "the learning-rate schedule");
    v.section("device", device, "device and threads of the computation");
  }
};

// Returns a sentence that says which values contradict each other, or "". ConfigFile::load calls this after
// it has checked each range.
std::string misfit(const RunConfig& config);

}  // namespace bonsai
