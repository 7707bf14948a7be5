// Runs the commands that read a trained model as processes: generate, inspect, evaluate.
#include "bonsai/layers/model/transformer.h"
#include "bonsai/tests/program.h"

namespace bonsai::test {
namespace {

// Generation stops at the end of the task's sequence, and a prompt must be a beginning of one (B55).
TEST(Program, AnAnswerEndsAndOnlyPromptsOfTheTaskAreTaken) {
  const Program p;
  const auto train = [&](const std::string& task, const std::string& data) {
    write(p.folder / (task + ".yaml"),
          "task: " + task + "\nmodel: {n_layers: 1, n_heads: 1, d_model: 8, block_size: 20}\n" +
                                           data + "trainer: {max_steps: 0}\n");
    ASSERT_EQ(p.run({"train", task + ".yaml", "--out", task, "--quiet"}).status, 0);
  };
  train("reverse", "data: {length: 4, alphabet: 6}\n");
  EXPECT_EQ(p.run({"generate", "reverse", "--prompt", "abcd|"}).out.size(), 10u)
      << "nine symbols and a line break";
  EXPECT_EQ(p.run({"generate", "reverse", "--prompt", "abcd|dc"}).out.size(), 10u);
  EXPECT_EQ(p.run({"generate", "reverse", "--prompt", "abcd|", "--max-tokens", "1"}).out.size(), 7u);
  EXPECT_EQ(p.run({"generate", "reverse", "--prompt", "abcd|dcba"}).out, "abcd|dcba\n");
  for (const std::string prompt : {"abcd", "a|b", "abc|", "abcde|", "ab|d|", "abcd||", "abcd|dcbaa"}) {
    expect_failure(p.run({"generate", "reverse", "--prompt", prompt}), 2, {"--prompt", "4 letters and '|'"});
    expect_failure(p.run({"inspect", "reverse", "--attention", prompt}), 2,
                   {"--attention", "4 letters and '|'"});
  }
  EXPECT_EQ(p.run({"inspect", "reverse", "--attention", "abcd|dcb"}).status, 0);

  train("induction", "data: {shortest: 3, longest: 8, vocabulary: 8}\n");
  EXPECT_EQ(p.run({"generate", "induction", "--prompt", "ABCABC"}).out.size(), 22u)
      << "block_size and the token after it";
  EXPECT_EQ(p.run({"generate", "induction", "--prompt", "AABA"}).status, 0);
  for (const std::string prompt : {"ABC", "ABCD", "ABAB", "ABCDEFGHG", "ABCB"})
    expect_failure(p.run({"generate", "induction", "--prompt", prompt}), 2,
                   {"--prompt", "a block of 3 to 8 tokens"});
}

// The weights of the checkpoint are finite, but its outputs are not (B53).
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
  ASSERT_EQ(p.run({"train", "tiny.yaml", "--out", "new", "--quiet", "--set", "trainer.max_steps=0"}).status,
            0);
  EXPECT_NE(p.run({"inspect", "new"}).out.find("step 0, not evaluated yet\n"), std::string::npos);
}

// The batch size of an untrusted checkpoint must not cause a huge allocation (B70).
TEST(Evaluate, RefusesABatchThatTheMachineCannotHold) {
  const Program p;
  write(p.folder / "reverse.yaml",
        "task: reverse\nmodel: {n_layers: 1, n_heads: 1, d_model: 8, block_size: 8}\n"
        "data: {length: 4, alphabet: 4, evaluation_sequences: 1000000000}\ntrainer: {max_steps: 0, "
        "batch_size: 2}\n");
  ASSERT_EQ(p.run({"train", "reverse.yaml", "--out", "reverse", "--quiet"}).status, 0);
  const Checkpoint checkpoint(p.folder / "reverse");
  RunConfig config = checkpoint.config();
  config.trainer.batch_size = 1000000000;
  prepare_data(config, checkpoint.tokenizer());
  Trainer trainer(config);
  checkpoint.load(trainer);
  save_checkpoint(checkpoint.file(), trainer, checkpoint.progress());
  expect_failure(p.run({"evaluate", "reverse"}), 2,
                 {"a batch of 1000000000 x 8 tokens", "make one of them smaller"});
}

// An untrained model attends equally to all keys: a row of five weights of 0.2 must be lighter than a row
// with a single 1 (B62).
TEST(Program, AHeatMapHasOneScaleAndSaysIt) {
  const Program p;
  p.trained("run", 0);
  const std::string map = p.run({"inspect", "run", "--attention", "a bat"}).out;
  const std::string light = "\u2591\u2591", dark = "\u2588\u2588";
  EXPECT_NE(
      map.find("block.0.attention head 1  (\u2591 to 0.25, \u2592 to 0.5, \u2593 to 0.75, \u2588 to 1)\n"
               "    a   b a t \n  a " +
               dark + " "),
      std::string::npos)
      << map;
  EXPECT_NE(map.find("\n  t " + light + light + light + light + light + "\n"), std::string::npos) << map;
  write(p.folder / "pairs.yaml",
        "task: seq2seq\n"
        "model: {n_layers: 1, n_encoder_layers: 1, n_heads: 1, d_model: 8, block_size: 8}\n"
        "data: {longest: 5, alphabet: 4}\ntrainer: {max_steps: 0}\n");
  ASSERT_EQ(p.run({"train", "pairs.yaml", "--out", "pairs", "--quiet"}).status, 0);
  const std::string source =
      p.run({"inspect", "pairs", "--attention", "abcd", "--layer", "encoder.block.0.attention"}).out;
  EXPECT_NE(source.find(" \u2588 to 0.25"), std::string::npos) << source;
}

// B76: tokens and samples are untrusted text.
TEST(Program, TokensAndSamplesDoNotDriveTheTerminal) {
  const Program p;
  write(p.folder / "text.yaml",
        "model: {n_layers: 1, n_heads: 1, d_model: 8, block_size: 8}\n"
        "data: {source: file, path: text.txt}\ntrainer: {max_steps: 2, sample_interval: 1, eval_interval: "
        "0}\n");
  std::string text;
  for (int i = 0; i < 200; ++i) text += "\x1b\r\x07\x1b";
  write(p.folder / "text.txt", text);
  const Outcome o = p.run({"train", "text.yaml", "--out", "run"});
  ASSERT_EQ(o.status, 0) << o.err;
  EXPECT_NE(o.err.find("\\u001b"), std::string::npos) << o.err;
  const Outcome map = p.run({"inspect", "run", "--attention", "\x1b\x07"});
  EXPECT_NE(map.out.find("    \\u001b \\u0007 \n"), std::string::npos) << map.out;
  for (const char c : o.err + map.out) EXPECT_TRUE(c == '\n' || c < 0 || c >= ' ') << static_cast<int>(c);
}

// A random text of `characters` characters.
std::string some_text(int64_t characters, uint64_t seed = 1) {
  std::string text;
  for (int64_t i = 0; i < characters; ++i)
    text += "abcdefgh"[static_cast<size_t>(random_uniform(random_key(seed, "text"),
                                                          static_cast<uint64_t>(i)) * 8)];
  return text;
}

constexpr const char* kFileRun =
    "model: {n_layers: 1, n_heads: 2, d_model: 16, block_size: 8}\n"
    "data: {source: file, path: text.txt, validation_fraction: 0.4}\n"
    "trainer: {max_steps: 10, batch_size: 2, eval_interval: 5}\n";

double loss_in(const Outcome& o) {
  EXPECT_TRUE(o.status == 0 && o.out.starts_with("val_loss ")) << o.out << o.err;
  return o.out.size() > 9 ? std::stod(o.out.substr(9)) : NAN;
}

TEST(Evaluate, TakesThePartThatTheRunHeldBack) {  // B44
  const Program p;
  write(p.folder / "text.yaml", kFileRun);
  write(p.folder / "text.txt", some_text(1000));
  ASSERT_EQ(p.run({"train", "text.yaml", "--out", "run", "--quiet"}).status, 0);
  const double own = loss_in(p.run({"evaluate", "run"}));
  EXPECT_EQ(loss_in(p.run({"evaluate", "run", "--data", "text.txt"})), own);
  // A run on tales holds back the last 402 of 1,005 tokens, which are 50 whole blocks of 8.
  write(p.folder / "tales.yaml",
        "model: {n_layers: 1, n_heads: 2, d_model: 16, block_size: 8}\n"
        "data: {characters: 2000, validation_fraction: 0.4}\ntrainer: {max_steps: 2}\n");
  ASSERT_EQ(p.run({"train", "tales.yaml", "--out", "tales", "--quiet"}).status, 0);
  const std::string other = some_text(1002, 2);
  write(p.folder / "other.txt", other);
  write(p.folder / "end.txt", other.substr(601));
  EXPECT_NEAR(loss_in(p.run({"evaluate", "tales", "--data", "other.txt"})),
              loss_in(p.run({"evaluate", "tales", "--data", "end.txt", "--whole"})), 1e-6);
}

TEST(Evaluate, TheWholeOfAFileHoweverShort) {  // B44
  const Program p;
  write(p.folder / "text.yaml", kFileRun);
  write(p.folder / "text.txt", some_text(1000));
  ASSERT_EQ(p.run({"train", "text.yaml", "--out", "run", "--quiet"}).status, 0);
  const Checkpoint checkpoint(p.folder / "run");
  Module root;
  const std::unique_ptr<Model> model = checkpoint.config().model.make(&root);
  checkpoint.load_model(*model);
  for (const int64_t length : {2, 5, 9, 12, 21}) {
    const std::string text = some_text(length, 3);
    write(p.folder / "short.txt", text);
    const std::vector<int32_t> ids = checkpoint.tokenizer()->encode(text);
    double sum = 0;
    for (int64_t begin = 0; begin + 1 < length; begin += 8) {
      const int64_t end = std::min(begin + 8, length - 1);
      const auto part = [&](int64_t shift) {
        return from<int32_t>({1, end - begin},
                             std::vector<int32_t>(ids.begin() + begin + shift, ids.begin() + end + shift));
      };
      Context context;
      sum += loss_of(*model, {part(0), part(1)}, context).sum.item();
    }
    EXPECT_NEAR(loss_in(p.run({"evaluate", "run", "--data", "short.txt", "--whole"})),
                sum / static_cast<double>(length - 1), 2e-6) << length;
  }
  expect_failure(p.run({"evaluate", "run", "--data", "short.txt"}), 2,
                 {"validation split has 8 tokens", "--whole"});
  write(p.folder / "short.txt", "a");
  expect_failure(p.run({"evaluate", "run", "--data", "short.txt", "--whole"}), 2, {"has 1 tokens"});
  EXPECT_EQ(p.run({"evaluate", "run", "--whole"}).status, 2);
}

// A path in an untrusted checkpoint is opened only if it is below the run folder or if the checkpoint records
// a checksum of the file (B78).
TEST(Evaluate, APathInACheckpointIsNotFollowedAnywhereNorAnyTextQuoted) {
  const Program p;
  const auto save = [&](const std::string& folder, const std::string& path, bool record, int status) {
    std::filesystem::create_directories(p.folder / folder);
    ConfigFile file = ConfigFile::from_text(kFileRun, "text.yaml");
    file.set("data.path=" + (p.folder / path).string());
    RunConfig config = file.load<RunConfig>();
    const auto task = std::make_shared<WatchedTask>(config.data);
    if (!record) task->other_identity.emplace();
    config.data = task;
    write(p.folder / path, some_text(1000));
    prepare_data(config);
    Trainer trainer(config);
    save_checkpoint(p.folder / folder / "checkpoint.safetensors", trainer, {});
    EXPECT_EQ(p.run({"evaluate", folder}).status, status) << path;
    std::filesystem::copy_file(p.folder / folder / "checkpoint.safetensors", p.folder / "here.safetensors",
                               std::filesystem::copy_options::overwrite_existing);
    EXPECT_EQ(p.run({"evaluate", "here.safetensors"}).status, 0)
        << "the text is below the checkpoint's folder";
    write(p.folder / path, some_text(998) + "Z\xe9");
    const Outcome o = p.run({"evaluate", folder});
    expect_failure(o, 2, {});
    for (const std::string quoted : {"'Z'", "U+005A", "0xE9"})
      EXPECT_EQ(o.err.find(quoted), std::string::npos) << o.err;
    return o.err;
  };
  EXPECT_NE(save("old", "secret.txt", false, 2).find("which is not below"), std::string::npos);
  EXPECT_NE(save("old", "old/secret.txt", false, 0).find("the character at byte 998"), std::string::npos);
  EXPECT_NE(save("new", "secret.txt", true, 0).find("the character at byte 998"), std::string::npos);
  std::filesystem::create_directory_symlink(p.folder.path(), p.folder / "old/out");  // leads out of the run
  EXPECT_NE(save("old", "old/out/secret.txt", false, 2).find("which is not below"), std::string::npos);
  EXPECT_NE(save("old", "old/../secret.txt", false, 2).find("which is not below"), std::string::npos);
}

TEST(Resume, OtherDataIsRefusedUnlessItIsAccepted) {  // B43
  const Program p;
  write(p.folder / "text.yaml", kFileRun);
  write(p.folder / "text.txt", some_text(1000));
  const auto resume =
      [&](const std::string& config, const std::string& run, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"train", config, "--out", run, "--resume"});
    return p.run(more);
  };
  ASSERT_EQ(p.run({"train", "text.yaml", "--out", "run", "--quiet"}).status, 0);
  EXPECT_EQ(resume("text.yaml", "run").status, 0);
  const double best = Checkpoint(p.folder / "run").progress().best_loss;
  EXPECT_TRUE(std::isfinite(best));
  write(p.folder / "text.txt", some_text(1300));
  const std::string last = contents(RunFolder{p.folder / "run"}.last());
  for (const std::string setting : {"trainer.max_steps=12", "trainer.max_steps=10"})
    expect_failure(resume("text.yaml", "run", {"--set", setting}), 2,
                   {"training is 780 tokens", "was 600 tokens", "validation is 520 tokens",
                    "--accept-new-data"});
  EXPECT_EQ(contents(RunFolder{p.folder / "run"}.last()), last);
  expect_failure(p.run({"evaluate", "run"}), 2, {"training is 780 tokens", "--data FILE"});
  // The changed data: another letter at the same length, another split, and other sequences of a generated
  // task.
  write(p.folder / "text.txt", some_text(1000).replace(500, 1, some_text(1000)[500] == 'a' ? "b" : "a"));
  expect_failure(resume("text.yaml", "run"), 2, {"training is 600 tokens, checksum"});
  write(p.folder / "text.txt", some_text(1000));
  expect_failure(resume("text.yaml", "run", {"--set", "data.validation_fraction=0.3"}), 2,
                 {"data.validation_fraction is 0.3, was 0.4"});
  write(p.folder / "reverse.yaml",
        "task: reverse\nmodel: {n_layers: 1, n_heads: 1, d_model: 8, block_size: 8}\n"
                                   "data: {length: 4, alphabet: 4, evaluation_sequences: 4}\n"
                                   "trainer: {max_steps: 1, batch_size: 2}\n");
  ASSERT_EQ(p.run({"train", "reverse.yaml", "--out", "reverse", "--quiet"}).status, 0);
  expect_failure(resume("reverse.yaml", "reverse", {"--set", "data.length=3"}), 2,
                 {"data.length is 3, was 4"});
  expect_failure(resume("reverse.yaml", "reverse", {"--set", "trainer.seed=2"}), 2,
                 {"trainer.seed is 2, was 1"});
  // A moved file is the same data. New data without some of the letters is encoded with the run's tokenizer.
  std::filesystem::rename(p.folder / "text.txt", p.folder / "moved.txt");
  EXPECT_EQ(resume("text.yaml", "run", {"--set", "data.path=moved.txt"}).status, 0);
  write(p.folder / "text.txt", std::string(600, 'a') + std::string(600, 'b'));
  const Outcome o = resume("text.yaml", "run", {"--accept-new-data", "--set", "trainer.max_steps=11",
                                                "--set", "trainer.eval_interval=0"});
  EXPECT_EQ(o.status, 0) << o.err;
  EXPECT_NE(o.err.find("new data, so the best loss starts anew"), std::string::npos) << o.err;
  EXPECT_NE(Checkpoint(p.folder / "run").progress().best_loss, best);
  EXPECT_EQ(resume("text.yaml", "run", {"--set", "trainer.max_steps=12"}).status, 0)
      << "accepted once, it is the run's";
}

TEST(Resume, ACheckpointThatDoesNotSayItsDataGoesOn) {
  const Folder folder;
  TinyRun old({"data.characters=20000"}),
      other({"data.characters=20000", "data.seed=2", "trainer.max_steps=25"});
  old.task->other_identity.emplace();
  old.train(folder / "run");
  EXPECT_EQ(other.train(folder / "run", true).progress.step, 25);
}

// JSON and YAML store only UTF-8, so the stored path would be a different one (B48).
TEST(Program, APathThatIsNotUtf8IsRefusedWhereItWouldBeStored) {
  const Program p;
  const std::string folder = "lat\xe9n";
  std::filesystem::create_directory(p.folder / folder);
  write(p.folder / folder / "text.yaml", kFileRun);
  write(p.folder / folder / "text.txt", some_text(1000));
  write(p.folder / folder / "tiny.yaml", kTinyRun);
  const std::string config = folder + "/text.yaml";
  expect_failure(p.run({"train", config, "--out", "run"}), 2, {"data.path is not UTF-8 text"});
  EXPECT_FALSE(std::filesystem::exists(p.folder / "run"));
  expect_failure(p.run({"config", "check", config}), 2, {"data.path is not UTF-8 text"});
  expect_failure(p.run({"train", "tiny.yaml", "--out", "run", "--set", "data.path=" + folder + "/text.txt"}),
                 2, {"UTF-8"});
  // A path that is not stored is not refused.
  const std::string run = folder + "/run";
  ASSERT_EQ(p.run({"train", folder + "/tiny.yaml", "--out", run, "--quiet"}).status, 0);
  EXPECT_EQ(p.run({"evaluate", run}).status, 0);
  EXPECT_EQ(p.run({"evaluate", run, "--data", folder + "/text.txt"}).status, 0);
}

// An encoder-decoder in every command that reads a checkpoint, and in a resumed run.
TEST(Program, AnEncoderDecoderAnswers) {
  const Program p;
  write(p.folder / "pairs.yaml",
        "task: seq2seq\n"
        "model: {n_layers: 1, n_encoder_layers: 1, n_heads: 2, d_model: 8, block_size: 8}\n"
        "data: {longest: 5, alphabet: 4, evaluation_sequences: 10}\n"
        "trainer: {max_steps: 3, batch_size: 4, sample_interval: 1}\n");
  const Outcome train = p.run({"train", "pairs.yaml", "--out", "pairs"});
  ASSERT_EQ(train.status, 0) << train.err;
  const Outcome resumed =
      p.run({"train", "pairs.yaml", "--out", "pairs", "--resume", "--set", "trainer.max_steps=5"});
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_NE(resumed.err.find("going on after step 3"), std::string::npos) << resumed.err;
  const Outcome audit = p.run({"audit", "pairs.yaml"});
  EXPECT_NE(audit.out.find("what it sees of a source: passed"), std::string::npos) << audit.out;
  EXPECT_EQ(p.run({"inspect", "pairs.yaml"}).status, 0);
  EXPECT_NE(p.run({"evaluate", "pairs"}).out.find("exact_match"), std::string::npos);
  const Outcome answer =
      p.run({"generate", "pairs", "--prompt", "cab", "--max-tokens", "6", "--temperature", "0"});
  EXPECT_EQ(answer.status, 0) << answer.err;
  EXPECT_LE(answer.out.size(), 7u) << "the answer alone: " << answer.out;
  expect_failure(p.run({"generate", "pairs"}), 2, {"--prompt is empty; give the source"});
  expect_failure(p.run({"generate", "pairs", "--prompt", "x"}), 2, {"--prompt", "'x'"});
  const Outcome longer = p.run({"generate", "pairs", "--prompt", "cab", "--temperature", "3"});
  EXPECT_EQ(longer.status, 0) << longer.err;
  EXPECT_LE(longer.out.size(), 8u) << "block_size is 8: " << longer.out;
  for (const std::string option : {"--prompt", "--attention"}) {
    const std::string command = option == "--prompt" ? "generate" : "inspect";
    expect_failure(p.run({command, "pairs", option, "abcabcabc"}), 2,
                   {option, "has 9 letters; this task's have 3 to 5"});
    expect_failure(p.run({command, "pairs", option, "ab"}), 2,
                   {option, "has 2 letters; this task's have 3 to 5"});
    for (const std::string sign : {"|", "~"})
      expect_failure(p.run({command, "pairs", option, "a" + sign}), 2,
                     {option, "'" + sign + "' is a sign of the task, not one of the 4 letters"});
  }
  write(p.folder / "text.txt", std::string(900, 'a'));
  expect_failure(p.run({"evaluate", "pairs", "--data", "text.txt"}), 2,
                 {"--data: a model of the task seq2seq reads no text file"});
  for (const std::string task : {"reverse", "induction"}) {
    write(p.folder / "other.yaml", "task: " + task +
                                       "\nmodel: {n_layers: 1, n_heads: 1, d_model: 8}\n"
                                       "data: {evaluation_sequences: 10}\ntrainer: {max_steps: 0}\n");
    EXPECT_EQ(p.run({"train", "other.yaml", "--out", task, "--quiet"}).status, 0);
    expect_failure(p.run({"evaluate", task, "--data", "text.txt"}), 2,
                   {"--data: a model of the task " + task + " reads no text file"});
  }
  const auto seen = nlohmann::json::parse(p.run({"inspect", "pairs", "--attention", "cab", "--json"}).out);
  EXPECT_EQ(seen["source"], (std::vector<std::string>{"c", "a", "b"}));
  const size_t written = seen["tokens"].size();
  const auto shape = [&](const char* layer) {
    const auto& heads = seen["weights"][layer];
    return std::vector<size_t>{heads.size(), heads[0].size(), heads[0][0].size()};
  };
  EXPECT_EQ(shape("encoder.block.0.attention"), (std::vector<size_t>{2, 3, 3}));
  EXPECT_EQ(shape("block.0.attention"), (std::vector<size_t>{2, written, written}));
  EXPECT_EQ(shape("block.0.cross_attention"), (std::vector<size_t>{2, written, 3}));
}

}  // namespace
}  // namespace bonsai::test
