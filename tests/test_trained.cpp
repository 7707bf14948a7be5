// The commands that read a trained model, from outside: generate, inspect, evaluate.
#include "tests/program.h"

namespace bonsai::test {
namespace {

// The sequence of a task has an end, and a beginning that is not just any text (B55).
TEST(Program, AnAnswerEndsAndOnlyPromptsOfTheTaskAreTaken) {
  const Program p;
  const auto train = [&](const std::string& task, const std::string& data) {
    write(p.folder / (task + ".yaml"), "task: " + task + "\nmodel: {n_layers: 1, n_heads: 1, d_model: 8, block_size: 20}\n" +
                                           data + "trainer: {max_steps: 0}\n");
    ASSERT_EQ(p.run({"train", task + ".yaml", "--out", task, "--quiet"}).status, 0);
  };
  train("reverse", "data: {length: 4, alphabet: 6}\n");
  EXPECT_EQ(p.run({"generate", "reverse", "--prompt", "abcd|"}).out.size(), 10u) << "nine symbols and a line break";
  EXPECT_EQ(p.run({"generate", "reverse", "--prompt", "abcd|dc"}).out.size(), 10u);
  EXPECT_EQ(p.run({"generate", "reverse", "--prompt", "abcd|", "--max-tokens", "1"}).out.size(), 7u);
  EXPECT_EQ(p.run({"generate", "reverse", "--prompt", "abcd|dcba"}).out, "abcd|dcba\n");
  for (const std::string prompt : {"abcd", "a|b", "abc|", "abcde|", "ab|d|", "abcd||", "abcd|dcbaa"}) {
    expect_failure(p.run({"generate", "reverse", "--prompt", prompt}), 2, {"--prompt", "4 letters and '|'"});
    expect_failure(p.run({"inspect", "reverse", "--attention", prompt}), 2, {"--attention", "4 letters and '|'"});
  }
  EXPECT_EQ(p.run({"inspect", "reverse", "--attention", "abcd|dcb"}).status, 0);

  train("induction", "data: {shortest: 3, longest: 8, vocabulary: 8}\n");
  EXPECT_EQ(p.run({"generate", "induction", "--prompt", "ABCABC"}).out.size(), 22u) << "block_size and the token after it";
  EXPECT_EQ(p.run({"generate", "induction", "--prompt", "AABA"}).status, 0);
  for (const std::string prompt : {"ABC", "ABCD", "ABAB", "ABCDEFGHG", "ABCB"})
    expect_failure(p.run({"generate", "induction", "--prompt", prompt}), 2, {"--prompt", "a block of 3 to 8 tokens"});
}

// A checkpoint whose weights are finite, but whose outputs are not (B53).
TEST(Program, ADivergedCheckpointIsAnErrorOfEveryCommandThatReadsIt) {
  const Program p;
  write(p.folder / "reverse.yaml",
        "task: reverse\nmodel: {n_layers: 1, n_heads: 1, d_model: 8, block_size: 8}\n"
        "data: {length: 4, alphabet: 4, evaluation_sequences: 4}\ntrainer: {max_steps: 1, batch_size: 2}\n");
  ASSERT_EQ(p.run({"train", "reverse.yaml", "--out", "reverse", "--quiet"}).status, 0);
  p.trained();
  for (const std::string run : {"run", "reverse"}) {
    const Checkpoint checkpoint(p.folder / run);
    RunConfig config = checkpoint.config();
    prepare_data(config, checkpoint.tokenizer());
    Trainer trainer(config);
    checkpoint.load(trainer);
    for (float& weight : trainer.arena().values().mutable_span<float>()) weight *= 1e25f;
    save_checkpoint(checkpoint.file(), trainer, checkpoint.progress());
    const std::string text = run == "run" ? "a" : "abcd|";
    for (const std::vector<std::string>& command :
         {std::vector<std::string>{"evaluate", run}, {"generate", run, "--prompt", text},
          {"inspect", run, "--attention", text}, {"inspect", run, "--attention", text, "--json"}}) {
      const Outcome o = p.run(command);
      expect_failure(o, 1, {"not finite", "use an earlier checkpoint"});
      EXPECT_EQ(o.out, "") << command[0];
    }
  }
  ASSERT_EQ(p.run({"train", "tiny.yaml", "--out", "new", "--quiet", "--set", "trainer.max_steps=0"}).status, 0);
  EXPECT_NE(p.run({"inspect", "new"}).out.find("step 0, not evaluated yet\n"), std::string::npos);
}

// An untrained model attends to all alike: a row of five weights of a fifth is not as dark as one of a single 1 (B62).
TEST(Program, AHeatMapHasOneScaleAndSaysIt) {
  const Program p;
  p.trained("run", 0);
  const std::string map = p.run({"inspect", "run", "--attention", "a bat"}).out;
  const std::string light = "\u2591\u2591", dark = "\u2588\u2588";
  EXPECT_NE(map.find("block.0.attention head 1  (\u2591 to 0.25, \u2592 to 0.5, \u2593 to 0.75, \u2588 to 1)\n"
                     "    a   b a t \n  a " + dark + " "), std::string::npos) << map;
  EXPECT_NE(map.find("\n  t " + light + light + light + light + light + "\n"), std::string::npos) << map;
  write(p.folder / "pairs.yaml", "task: seq2seq\n"
                                 "model: {n_layers: 1, n_encoder_layers: 1, n_heads: 1, d_model: 8, block_size: 8}\n"
                                 "data: {longest: 5, alphabet: 4}\ntrainer: {max_steps: 0}\n");
  ASSERT_EQ(p.run({"train", "pairs.yaml", "--out", "pairs", "--quiet"}).status, 0);
  const std::string source = p.run({"inspect", "pairs", "--attention", "abcd", "--layer", "encoder.block.0.attention"}).out;
  EXPECT_NE(source.find(" \u2588 to 0.25"), std::string::npos) << source;
}

}  // namespace
}  // namespace bonsai::test
