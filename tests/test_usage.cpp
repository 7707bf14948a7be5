// The errors for an unknown word, a wrong kind of file, a wrong environment variable and a model that is too
// large.
#include "bonsai/tests/program.h"

namespace bonsai::test {
namespace {

// B61
TEST(Usage, AnUnknownWordIsNamedWithTheOneThatWasMeant) {
  const Program p;
  expect_failure(p.run({"generate", "--max-token", "5", "run"}), 2,
                 {"bonsai generate has no option '--max-token'; did you mean --max-tokens?"});
  expect_failure(p.run({"train", "tiny.yaml", "--resum"}), 2, {"did you mean --resume?"});
  expect_failure(p.run({"train", "tiny.yaml", "--thread=2"}), 2,
                 {"has no option '--thread'; did you mean --threads?"});
  expect_failure(p.run({"train", "tiny.yaml", "--frobnicate"}), 2,
                 {"bonsai train has no option '--frobnicate'; see bonsai train --help"});
  expect_failure(p.run({"trian", "tiny.yaml"}), 2, {"bonsai has no command 'trian'; did you mean train?"});
  expect_failure(p.run({"config", "chekc", "tiny.yaml"}), 2,
                 {"bonsai config has no command 'chekc'; did you mean check?"});
  expect_failure(p.run({"config", "check", "tiny.yaml", "--sett", "a=1"}), 2, {"did you mean --set?"});
  expect_failure(p.run({"--versoin"}), 2, {"did you mean --version?"});
  expect_failure(p.run({"evaluate", "one", "two", "three"}), 2, {"bonsai evaluate has no use for 'two'"});
  // The value of an option is not read as an option.
  expect_failure(p.run({"generate", "--prompt", "--max-token", "nope"}), 2, {"nope is not a checkpoint"});
}

// B61
TEST(Usage, HelpShowsTypesAndDefaultsAndWhatIsTaken) {
  const Program p;
  const std::string generate = p.run({"generate", "--help"}).out;
  for (const std::string part : {"--max-tokens INT=200", "--temperature FLOAT=1", "--top-k INT=0",
                                 "--prompt TEXT"})
    EXPECT_NE(generate.find(part), std::string::npos) << part << ": " << generate;
  const std::string check = p.run({"config", "check", "--help"}).out;
  EXPECT_NE(check.find("--set KEY=VALUE "), std::string::npos) << check;
  EXPECT_EQ(check.find("KEY=VALUE ..."), std::string::npos) << check;
  EXPECT_EQ(check.find("--threads INT="), std::string::npos) << "it has no default of its own: " << check;
  EXPECT_NE(p.run({"gradcheck", "--help"}).out.find("--tokens INT=4"), std::string::npos);
  expect_failure(p.run({"config", "check", "tiny.yaml", "--set", "model.n_layers=2", "model.n_heads=2"}), 2,
                 {"has no use for 'model.n_heads=2'"});
  EXPECT_EQ(p.run({"config", "check", "tiny.yaml", "--set", "model.n_layers=3", "--set",
                   "model.n_heads=1"}).status, 0);
}

// B61: a wrong file exits with status 2. B56: configs and checkpoints are distinguished by content.
TEST(Usage, AConfigIsNoCheckpointWhateverItsName) {
  const Program p;
  p.trained();
  const std::string checkpoint = "run/checkpoints/last/checkpoint.safetensors";
  for (const std::string name : {"c.conf", "c.YAML", "c", "c.safetensors"}) {
    write(p.folder / name, kTinyRun);
    const Outcome inspect = p.run({"inspect", name});
    EXPECT_EQ(inspect.status, 0) << inspect.err;
    EXPECT_NE(inspect.out.find("block.0.attention.query.weight"), std::string::npos) << inspect.out;
    EXPECT_EQ(p.run({"config", "check", name}).status, 0);
    for (const std::string command : {"evaluate", "generate"})
      expect_failure(p.run({command, name}), 2, {name + " is a text file, not a checkpoint"});
  }
  std::filesystem::copy_file(p.folder / checkpoint, p.folder / "model.yaml");
  EXPECT_EQ(p.run({"evaluate", "model.yaml"}).out, p.run({"evaluate", "run"}).out);
  EXPECT_NE(p.run({"inspect", "model.yaml"}).out.find("step 4"), std::string::npos);
  for (const std::string command : {"train", "bench", "gradcheck", "audit"})
    expect_failure(p.run({command, "model.yaml"}), 2, {"model.yaml is a checkpoint, not a config"});
  expect_failure(p.run({"config", "explain", checkpoint}), 2,
                 {checkpoint + " is a checkpoint, not a config"});
  for (const std::string command : {"evaluate", "generate", "inspect"})
    expect_failure(p.run({command, "runs/nope"}), 2, {"runs/nope"});
}

// B63: --set can replace the data of a shipped config by a text file.
TEST(Usage, AnotherDataSourceDropsTheKeysOfTheFirstWithANote) {
  const Program p;
  std::string text(3000, 'a');
  text[0] = 'b';
  write(p.folder / "text.txt", text);
  const Outcome file =
      p.run({"config", "check", BONSAI_SOURCE_DIR "/configs/toy_decoder.yaml", "--set", "data.source=file",
                              "--set", "data.path=text.txt"});
  EXPECT_EQ(file.status, 0) << file.err;
  EXPECT_NE(file.err.find("data.characters of "), std::string::npos) << file.err;
  EXPECT_NE(file.err.find(" is left out"), std::string::npos) << file.err;
  EXPECT_NE(file.out.find("path: " + (std::filesystem::canonical(p.folder.path()) / "text.txt").string()),
            std::string::npos)
      << "a path in --set is relative to the current folder: " << file.out;
  const Outcome task =
      p.run({"config", "check", "tiny.yaml", "--set", "task=reverse", "--set", "data.length=4"});
  EXPECT_EQ(task.status, 0) << task.err;
  EXPECT_NE(task.err.find("data.source of tiny.yaml is left out"), std::string::npos) << task.err;
  const Outcome unset =
      p.run({"config", "check", "tiny.yaml", "--unset", "data.characters", "--unset", "data.source"});
  EXPECT_NE(unset.out.find("characters: 1000000"), std::string::npos) << unset.out << unset.err;
  expect_failure(p.run({"config", "check", "tiny.yaml", "--unset", "data.seed"}), 2,
                 {"--unset data.seed: the file has no such key"});
}

// B72: every command refuses the model before it generates data or builds a layer.
TEST(Usage, WhatTheMachineCannotHoldIsRefusedOnceItIsKnown) {
  const Program p;
  write(p.folder / "late.yaml",  // the vocabulary comes from the data
        "data: {source: random, vocabulary: 1000000, characters: 100000}\n"
        "model: {d_model: 4, n_layers: 1, block_size: 64}\n"
        "trainer: {batch_size: 60000, max_steps: 1, audit: false}\n");
  write(p.folder / "layers.yaml",
        "model: {n_layers: 5000000000, d_model: 1, n_heads: 1, block_size: 1}\ntrainer: {batch_size: 1}\n");
  write(p.folder / "most.yaml", "task: reverse\nmodel: {n_layers: 9223372036854775807}\n");
  for (const std::string file : {"late.yaml", "layers.yaml", "most.yaml"}) {
    for (const std::string command : {"train", "bench", "inspect"})
      expect_failure(p.run({command, file}), 2, {"need about", "bytes, but this machine has"});
    expect_failure(p.run({"config", "check", file}), 2, {"need about"});
  }
  EXPECT_FALSE(std::filesystem::exists(p.folder / "runs"));
}

// B80
TEST(Usage, AsManyCharactersAsTakeMinutesToMakeAreOutOfRange) {
  const Program p;
  expect_failure(p.run({"config", "check", "tiny.yaml", "--set", "data.characters=1e9"}), 2,
                 {"data.characters is '1e9'; it must be a whole number, from 1000 to 100000000"});
}

// B81: the error is raised at the start, not when a layer first reads the variable.
TEST(Usage, AWrongVariableIsAWrongUse) {
  const Program p;
  const auto expect = [&](const char* name, const char* value, const std::string& words) {
    ::setenv(name, value, 1);
    for (const auto& arguments : {std::vector<std::string>{"train", "tiny.yaml"},
                                  {"config", "check", "tiny.yaml"}, {"doctor"}}) {
      const Outcome o = p.run(arguments);
      expect_failure(o, 2, {words});
      EXPECT_EQ(o.err.find("(in "), std::string::npos) << o.err;
    }
    EXPECT_EQ(p.run({"--help"}).status, 0);
    ::unsetenv(name);
  };
  expect("BONSAI_THREADS", "many", "BONSAI_THREADS is 'many'; give a number from 1 to 1024");
  expect("BONSAI_THREADS", "0", "BONSAI_THREADS is '0'");
  expect("BONSAI_ISA", "v9", "BONSAI_ISA=v9 is not a level of this build");
  expect("BONSAI_BLAS", "mine", "BONSAI_BLAS is 'mine'; give own, or leave it unset");
  EXPECT_FALSE(std::filesystem::exists(p.folder / "runs"));
}

}  // namespace
}  // namespace bonsai::test
