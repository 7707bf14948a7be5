// Printed configs: the dump of a run's config loads to the same config; other forms are for people and
// editors.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "bonsai/framework/config/print.h"
#include "bonsai/tests/config_sample.h"

namespace bonsai {
namespace {

RunPart unusual() {
  RunPart run;
  run.task = "text";
  run.model.dropout = 0.1 + 0.2;
  run.model.bias = false;
  run.trainer.seed = INT64_MIN;
  run.trainer.optimizer.learning_rate = 1e-300;
  run.trainer.optimizer.weight_decay = 123456789012345680.0;
  return run;
}

TEST(ConfigPrint, WhatIsDumpedLoadsToEqualValues) {
  for (const char* path : {"",      "a",     "data/a-1.txt", "1e-4", "no",   "Null", "~",  "true",
                           "a: b",  "a #b",  " a",           "a ",   "it's", "\"",   "\\", "line\nline\n",
                           "\ttab", "größe", "- a",          "[a",   "&a",   "*a",   "!a", "%",
                           "@",     "`",     "\x01",         "\x7F", "<<",   "-",    "a:"}) {
    RunPart run = unusual();
    run.text.path = path;
    const std::string dumped = dump_config(config_keys(run));
    const std::vector<ConfigKey> before = config_keys(run), after = config_keys(load(dumped));
    ASSERT_EQ(before.size(), after.size());
    for (size_t i = 0; i < before.size(); ++i) EXPECT_EQ(before[i].value, after[i].value) << dumped;
  }
}

TEST(ConfigPrint, TheDumpIsInBlockStyleOneKeyALine) {
  EXPECT_EQ(dump_config(config_keys(load(kGood))), R"(task: copy
model:
  n_layers: 4
  n_heads: 100
  d_model: 128
  dropout: 0
  norm: rms_norm
  bias: false
trainer:
  max_steps: 1000
  optimizer:
    learning_rate: 0.0001
    weight_decay: 0.01
  seed: -3
data:
  length: 12
)");
}

TEST(ConfigPrint, ExplainMarksWhatIsNotTheDefault) {
  EXPECT_EQ(
      explain_config(config_keys(load(kGood))),
      R"(* task                             copy (default text)            what to learn (one of text, copy)

model: the network
  model.n_layers                   4                              number of blocks (at least 1)
* model.n_heads                    100 (default 4)                attention heads a block (at least 1)
  model.d_model                    128                            width | of the stream (at least 1)
  model.dropout                    0                              dropout (from 0 to 1)
* model.norm                       rms_norm (default layer_norm)  kind of norm (one of layer_norm, rms_norm)
* model.bias                       false (default true)           biases (true or false)

trainer: the training
* trainer.max_steps                1000 (default 100)             steps (at least 0)

trainer.optimizer: AdamW
* trainer.optimizer.learning_rate  0.0001 (default 0.001)         highest learning rate (at least 0)
* trainer.optimizer.weight_decay   0.01 (default 0.1)             decay of matrices (at least 0)
* trainer.seed                     -3 (default 1)                 of everything random (a whole number)

data: made words
* data.length                      12 (default 8)                 of a word to copy (at least 1)
)");
}

TEST(ConfigPrint, TheSchemaSaysWhatAnEditorMayOffer) {
  const auto schema = nlohmann::json::parse(config_schema(config_keys<RunPart>()));
  EXPECT_EQ(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
  EXPECT_EQ(schema["properties"]["model"]["additionalProperties"], false);
  EXPECT_EQ(schema["properties"]["model"]["properties"]["n_heads"],
            nlohmann::json::parse(R"({"type": "integer", "minimum": 1, "default": 4,
                                      "description": "attention heads a block"})"));
  const auto dropout = schema["properties"]["model"]["properties"]["dropout"];
  EXPECT_EQ(dropout, nlohmann::json::parse(R"({"type": "number", "minimum": 0, "maximum": 1, "default": 0,
                                               "description": "dropout"})"));
  EXPECT_EQ(schema["properties"]["task"]["enum"], nlohmann::json({"text", "copy"}));
  const auto trainer = schema["properties"]["trainer"]["properties"];
  EXPECT_EQ(trainer["optimizer"]["properties"]["learning_rate"]["default"], 0.001);
  EXPECT_EQ(trainer["seed"], nlohmann::json::parse(R"({"type": "integer", "default": 1,
                                                       "description": "of everything random"})"));
}

TEST(ConfigPrint, TheMarkdownListEscapesItsColumns) {
  EXPECT_EQ(config_markdown(config_keys<OptimizerPart>()), R"(| key | default | value | |
|---|---|---|---|
| `learning_rate` | `0.001` | at least 0 | highest learning rate |
| `weight_decay` | `0.1` | at least 0 | decay of matrices |
)");
  const std::string all = config_markdown(config_keys<RunPart>());
  EXPECT_NE(all.find("\n**model**: the network\n\n| key"), std::string::npos) << all;
  EXPECT_NE(all.find("| `model.d_model` | `128` | at least 1 | width \\| of the stream |\n"),
            std::string::npos);
}

// A trainer and its task may share a section.
struct TwoParts {
  OptimizerPart first;
  CopyPart second;
  int64_t seed = 1;
  template <class V>
  void visit(V& v) {
    v.section("data", first, "both");
    v("seed", seed, "of all", at_least(0));
    v.section("data", second, "both");
  }
};

TEST(ConfigPrint, ASectionMayBeVisitedInParts) {
  const auto run = ConfigFile::from_text("data: {length: 3, weight_decay: 2}\n", "f").load<TwoParts>();
  EXPECT_EQ(run.second.length, 3);
  EXPECT_EQ(run.first.weight_decay, 2);
  EXPECT_EQ(dump_config(config_keys(run)),
            "data:\n  learning_rate: 0.001\n  weight_decay: 2\n  length: 3\nseed: 1\n");
}

}  // namespace
}  // namespace bonsai
