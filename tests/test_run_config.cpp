// Configs of runs: values must be consistent with each other, and unknown keys are errors.
#include "bonsai/framework/config/print.h"
#include "bonsai/layers/model/transformer.h"
#include "bonsai/tests/training.h"

namespace bonsai::test {
namespace {

RunConfig loaded(const std::string& text, const std::vector<std::string>& settings = {}) {
  return load_run(ConfigFile::from_text(text, "f.yaml"), settings);
}

std::string refusal(const std::string& text, const std::vector<std::string>& settings = {}) {
  try {
    loaded(text, settings);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

const ConfigKey& key_of(const std::vector<ConfigKey>& keys, const std::string& path) {
  return *std::find_if(keys.begin(), keys.end(), [&](const ConfigKey& k) { return k.path == path; });
}

// B39
TEST(RunConfig, TheMinimumFollowsThePeakUnlessItIsWritten) {
  const RunConfig run = loaded(kTinyRun, {"trainer.max_steps=60"});
  EXPECT_EQ(run.schedule.min_learning_rate, 1e-3);
  const std::string text = "trainer: {max_steps: 60}\nschedule: {learning_rate: 1e-5, warmup_steps: 10}\n";
  const RunConfig low = loaded(text);
  EXPECT_DOUBLE_EQ(low.schedule.min_learning_rate, 1e-6);
  for (int64_t step = 0; step < 60; ++step) EXPECT_LE(learning_rate(low.schedule, step, 60), 1e-5) << step;
  const std::vector<ConfigKey> keys = config_keys(low);
  EXPECT_EQ(key_of(keys, "schedule.min_learning_rate").value,
            ConfigKey::Value(low.schedule.min_learning_rate));
  EXPECT_FALSE(key_of(keys, "schedule.min_learning_rate").changed());
  EXPECT_EQ(key_of(config_keys<RunConfig>(), "schedule.min_learning_rate").text(), "0.0001");
  EXPECT_EQ(refusal(text, {"schedule.min_learning_rate=2e-5"}),
            "f.yaml: schedule.min_learning_rate 2e-05 is above schedule.learning_rate 1e-05; lower it or "
            "leave it out");
  EXPECT_EQ(refusal(text, {"schedule.min_learning_rate=1e-5"}), "no error");
  // The same holds for a config that is not loaded from a file.
  EXPECT_DOUBLE_EQ(learning_rate({.learning_rate = 1e-5, .warmup_steps = 0}, 60, 60), 1e-6);
}

// B39, B40: the default of the warm-up follows the length of the run.
TEST(RunConfig, WarmUpFitsIntoTheRun) {
  EXPECT_EQ(loaded("task: language_model\n").schedule.warmup_steps, 100);
  EXPECT_EQ(loaded("trainer: {max_steps: 5000}\n").schedule.warmup_steps, 100);
  EXPECT_EQ(loaded("trainer: {max_steps: 60}\n").schedule.warmup_steps, 6);
  EXPECT_EQ(loaded("schedule: {kind: constant}\ntrainer: {max_steps: 5}\n").schedule.warmup_steps, 0);
  const std::string error =
      "f.yaml: schedule.warmup_steps 20 is more than trainer.max_steps 10; lower it or leave it out";
  EXPECT_EQ(refusal("trainer: {max_steps: 10}\nschedule: {warmup_steps: 20}\n"), error);
  EXPECT_EQ(refusal("schedule: {warmup_steps: 20}\n", {"trainer.max_steps=10"}), error);
  EXPECT_EQ(refusal("schedule: {warmup_steps: 20}\n", {"trainer.max_steps=20"}), "no error");
  EXPECT_EQ(refusal("schedule: {warmup_steps: 20}\n", {"trainer.max_steps=0"}), "no error")
      << "no step has a rate";
}

// B40: the rate of the last step is above the minimum, as the key's help says.
TEST(RunConfig, TheMinimumIsWhereTheCosineEndsAfterTheLastStep) {
  const ScheduleConfig s{.learning_rate = 1, .min_learning_rate = 0.1, .warmup_steps = 0};
  EXPECT_NEAR(learning_rate(s, 9, 10), 0.1220, 1e-4);
  EXPECT_EQ(learning_rate(s, 10, 10), 0.1);
  const std::string help = key_of(config_keys<RunConfig>(), "schedule.min_learning_rate").help;
  EXPECT_TRUE(help.starts_with("learning rate at the end of the decay;")) << help;
}

// B42, and other values that are each in range but contradict each other.
TEST(RunConfig, ValuesThatContradictEachOtherAreRefusedWithBoth) {
  const std::string start = "trainer: {max_steps: 200}\n";
  const auto expect = [&](std::vector<std::string> settings, const std::string& error) {
    EXPECT_EQ(refusal(start, settings), "f.yaml: " + error);
  };
  expect({"trainer.early_stop=2", "trainer.eval_interval=0"},
         "trainer.early_stop 2 needs evaluations during the run, but trainer.eval_interval is 0");
  expect({"trainer.early_stop=2", "trainer.eval_interval=200"},
         "trainer.early_stop 2 needs evaluations during the run, but trainer.eval_interval is 200 and "
         "trainer.max_steps "
         "200");
  EXPECT_EQ(refusal(start, {"trainer.early_stop=2", "trainer.eval_interval=199"}), "no error");
  EXPECT_EQ(refusal(start, {"trainer.early_stop=0", "trainer.eval_interval=0"}), "no error");
  expect({"trainer.mark_halving=true", "trainer.log_interval=11"},
         "trainer.mark_halving compares losses 10 steps apart, but trainer.log_interval is 11; lower it to "
         "at most 10");
  EXPECT_EQ(refusal(start, {"trainer.mark_halving=true", "trainer.log_interval=10"}), "no error");
  expect({"schedule.learning_rate=2", "optimizer.weight_decay=0.6"},
         "schedule.learning_rate 2 times optimizer.weight_decay 0.6 is more than 1, so a step would reverse "
         "the sign of "
         "every weight; lower one of them");
  EXPECT_EQ(refusal(start, {"schedule.learning_rate=2", "optimizer.weight_decay=0.5"}), "no error");
  expect({"model.n_heads=3"}, "model: d_model 128 is not divisible by n_heads 3");
  expect({"model.n_encoder_layers=1"},
         "model.n_encoder_layers is 1, but the task language_model has no source for an encoder");
  EXPECT_EQ(refusal(start, {"task=seq2seq"}),
            "f.yaml: model.n_encoder_layers is 0, but the task seq2seq has a source, which needs an encoder");
}

// A checkpoint of an older run can be read even if its values are now refused.
TEST(RunConfig, IsReadWithoutAskingWhetherItFits) {
  const auto file = ConfigFile::from_text("trainer: {max_steps: 10}\nschedule: {warmup_steps: 100}\n", "old");
  EXPECT_EQ(file.read<RunConfig>().schedule.warmup_steps, 100);
  EXPECT_THROW(file.load<RunConfig>(), ConfigError);
}

// B75: found by the sanitizers.
TEST(RunConfig, TheLargestNumbersAreCountedWithoutOverflow) {
  const std::string most = "=9223372036854775807";
  for (const std::string key :
       {"n_layers", "n_encoder_layers", "block_size", "d_hidden", "attention.window", "vocab_size"})
    EXPECT_NE(refusal("task: seq2seq\nmodel: {n_encoder_layers: 1}\n", {"model." + key + most}), "") << key;
  TransformerConfig model{.n_layers = INT64_MAX, .n_encoder_layers = INT64_MAX};
  EXPECT_EQ(misfit(model), "");
  EXPECT_GT(parameter_count(model), 1e18);
}

// B67
TEST(RunConfig, AKeyOfAnotherChoiceSaysWhich) {
  const auto expect = [](const std::string& text, const std::string& start) {
    const std::string error = refusal(text);
    EXPECT_TRUE(error.starts_with("f.yaml:" + start)) << error;
  };
  expect("data: {path: a}\n",
         "1:8: data.path is not a key of data; it is one only with data.source: file (known: ");
  expect("data: {vocabulary: 9}\n",
         "1:8: data.vocabulary is not a key of data; it is one only with task: induction, or data.source: "
         "random (known: ");
  expect(
      "data:\n  source: file\n  characters: 2000\n",
      "3:3: data.characters is not a key of data; it is one only with data.source: tales or random (known: ");
  expect("data: {alphabet: 9}\n",
         "1:8: data.alphabet is not a key of data; it is one only with task: reverse or seq2seq ");
  expect(
      "task: reverse\ndata: {path: a}\n",
      "2:8: data.path is not a key of data; it is one only with task: language_model and data.source: file ");
  expect("data: {nonsense: 9}\n", "1:8: data.nonsense is not a key of data (known: ");
}

// B63
TEST(RunConfig, WhatTheSettingsLeaveNoUseForIsDropped) {
  const auto dropped = [](const std::string& text, const std::vector<std::string>& settings) {
    ConfigFile file = ConfigFile::from_text(text, "f.yaml");
    for (const std::string& setting : settings) file.set(setting);
    const std::vector<std::string> paths = file.drop_unused<RunConfig>();
    file.load<RunConfig>();
    return paths;
  };
  using Paths = std::vector<std::string>;
  const std::string tales = "data: {source: tales, characters: 5000, seed: 3, validation_fraction: 0.2}\n";
  EXPECT_EQ(dropped(tales, {"data.source=file", "data.path=a"}), (Paths{"data.characters", "data.seed"}));
  EXPECT_EQ(dropped(tales, {"data.source=random"}), Paths{});
  EXPECT_EQ(dropped(tales, {"task=reverse"}),
            (Paths{"data.source", "data.characters", "data.seed", "data.validation_fraction"}));
  EXPECT_THROW(dropped("data: {characters: 5000, path: a}\n", {"model.n_layers=2"}), ConfigError)
      << "wrong with and without the settings";
  EXPECT_THROW(dropped(tales, {"data.source=file", "data.characters=6000"}), ConfigError)
      << "asked for by name";

  ConfigFile file = ConfigFile::from_text("data:\n  characters: 5000\nmodel: {n_layers: 9}\n", "f.yaml");
  file.unset("data.characters");
  file.unset("model");
  EXPECT_EQ(file.load<RunConfig>().model.kind.as<TransformerKeys>().n_layers, TransformerConfig().n_layers);
  file.unset("data.seed");
  try {
    file.load<RunConfig>();
    ADD_FAILURE();
  } catch (const ConfigError& e) {
    EXPECT_STREQ(e.what(), "--unset data.seed: the file has no such key");
  }
}

}  // namespace
}  // namespace bonsai::test
