// A config with every feature of configs, for the tests of loading and printing.
#pragma once

#include <cmath>

#include "bonsai/framework/config/yaml.h"

namespace bonsai {

struct ModelPart {
  int64_t n_layers = 4;
  int64_t n_heads = 4;
  int64_t d_model = 128;
  double dropout = 0;
  std::string norm = "layer_norm";
  bool bias = true;
  template <class V>
  void visit(V& v) {
    v("n_layers", n_layers, "number of blocks", at_least(1));
    v("n_heads", n_heads, "attention heads a block", at_least(1));
    v("d_model", d_model, "width | of the stream", at_least(1));
    v("dropout", dropout, "dropout", between(0, 1));
    v("norm", norm, "kind of norm", OneOf{{"layer_norm", "rms_norm"}});
    v("bias", bias, "biases");
  }
};

struct OptimizerPart {
  double learning_rate = 1e-3;
  double weight_decay = 0.1;
  template <class V>
  void visit(V& v) {
    v("learning_rate", learning_rate, "highest learning rate", at_least(0));
    v("weight_decay", weight_decay, "decay of matrices", at_least(0));
  }
};

struct TrainerPart {
  int64_t max_steps = 100;
  OptimizerPart optimizer;
  int64_t seed = 1;
  template <class V>
  void visit(V& v) {
    v("max_steps", max_steps, "steps", at_least(0));
    v.section("optimizer", optimizer, "AdamW");
    v("seed", seed, "of everything random", Range{-INFINITY, INFINITY});
  }
};

struct TextPart {
  std::string path = "";
  template <class V>
  void visit(V& v) {
    v("path", path, "text to learn");
  }
};

struct CopyPart {
  int64_t length = 8;
  template <class V>
  void visit(V& v) {
    v("length", length, "of a word to copy", at_least(1));
  }
};

struct RunPart {
  std::string task = "text";
  ModelPart model;
  TrainerPart trainer;
  TextPart text;
  CopyPart copy;
  template <class V>
  void visit(V& v) {
    v("task", task, "what to learn", OneOf{{"text", "copy"}});
    v.section("model", model, "the network");
    v.section("trainer", trainer, "the training");
    if (task == "text") v.section("data", text, "the text");
    if (task == "copy") v.section("data", copy, "made words");
  }
};

inline constexpr const char* kGood = R"(# a comment
task: copy   # another

data:
  length: 12
trainer:
  seed: -3
  optimizer: {learning_rate: 1e-4, weight_decay: '0.01'}
  max_steps: 1e3
model:

  # of the smallest size
  n_heads: 0100
  norm: "rms_norm"
  bias: false
)";

inline RunPart load(const std::string& text, const std::vector<std::string>& settings = {}) {
  ConfigFile file = ConfigFile::from_text(text, "f.yaml");
  for (const std::string& setting : settings) file.set(setting);
  return file.load<RunPart>();
}

}  // namespace bonsai
