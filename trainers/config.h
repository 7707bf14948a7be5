// What a YAML file of a run says. Defaults stand here; layers/model has the models'.
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
  int64_t halving_window() const { return std::max<int64_t>(1, max_steps / 20); }  // steps within which a loss halves
  template <class V>
  void visit(V& v) {
    v("max_steps", max_steps, "optimizer steps", at_least(0));
    v("batch_size", batch_size, "sequences in a micro-batch", at_least(1));
    v("gradient_accumulation", gradient_accumulation, "micro-batches a step; the loss is that of all their tokens", between(1, 65535));
    v.renamed("accumulation", "gradient_accumulation");
    v("eval_interval", eval_interval, "steps between evaluations; 0 evaluates only at the end", at_least(0));
    v("eval_batches", eval_batches, "batches of an evaluation, always the same; 0 takes all. With a number, the end adds val_loss_full, over all", at_least(0));
    v("checkpoint_interval", checkpoint_interval, "steps between checkpoints; 0 saves only at the end", at_least(0));
    v("log_interval", log_interval, "steps between lines of metrics.jsonl", at_least(1));
    v("sample_interval", sample_interval, "steps between samples of text; 0 for none", at_least(0));
    v("early_stop", early_stop, "evaluations in a row without a better val_loss after which the run stops; 0 never stops early", at_least(0));
    v("seed", seed, "of weights, data order and dropout", at_least(0));
    v("audit", audit, "whether a run first proves that no position sees its future");
    v("mark_halving", mark_halving, "whether to mark the first step whose loss has halved within 5 % of the steps");
    v("trace_nonfinite", trace_nonfinite, "whether every op is watched for its first value that is not finite; slow");
    v("dtype", dtype, "of parameters and activations", OneOf{{"f32", "f64"}});
  }
};

struct DeviceConfig {
  std::string type = "cpu";
  int64_t threads = 0;
  int64_t index = 0;
  bool tf32 = false;
  Device device() const { return type == "cuda" ? Device{Device::cuda, static_cast<int8_t>(index)} : Device{}; }
  template <class V>
  void visit(V& v) {
    v("type", type, "where the run computes", OneOf{{"cpu", "cuda"}});
    v("threads", threads, "CPU threads; 0 takes one per processor that the process may use", between(0, 1024));
    v("index", index, "which of the CUDA devices", between(0, 127));
    v("tf32", tf32, "whether a CUDA device may round the operands of f32 products to 10 bits; faster");
  }
};

struct RunConfig {
  std::string task = TaskKind::standard;
  ModelConfig model;
  std::shared_ptr<Task> data;  // has the data section's keys: those of the task
  TrainerConfig trainer;
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  DeviceConfig device;

  template <class V>
  void visit(V& v) {
    v("task", task, "what the model learns", OneOf{registry<TaskKind>().names()});
    if (const auto part = registry<TaskKind>().config(task); part && (!data || data->name() != task)) data = part->make();
    v.section("model", model, "what is trained");
    if (data) v.section("data", *data, "what it is trained on");
    v.section("trainer", trainer, "the loop");
    v.section("optimizer", optimizer, "how a step changes the parameters");
    ScheduleConfig::Keys of_schedule{schedule, trainer.max_steps};
    v.section("schedule", of_schedule, "the learning rate");
    v.section("device", device, "where it runs");
  }
};

// Which values, each in its range, contradict each other, as a sentence; empty if none do. ConfigFile::load asks.
std::string misfit(const RunConfig& config);

}  // namespace bonsai
