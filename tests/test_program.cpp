// Runs the program as a process: exit statuses, one sentence for every bad input, and no lost data.
#include <sys/resource.h>
#include <sys/stat.h>

#include "bonsai/tests/program.h"

namespace bonsai::test {
namespace {

TEST(Program, TrainsAndEveryCommandReadsTheRun) {
  const Program p;
  const Outcome train = p.run({"train", "tiny.yaml", "--out", "run", "--set", "trainer.sample_interval=10"});
  EXPECT_EQ(train.status, 0) << train.err;
  EXPECT_EQ(train.out, "run\n");
  EXPECT_NE(train.err.find("tensors with weight decay"), std::string::npos) << train.err;
  const RunFolder run{p.folder / "run"};
  for (const auto& file : {run.config(), run.metrics(), run.last(), run.best()})
    EXPECT_TRUE(std::filesystem::exists(file)) << file;

  for (const std::string path :
       {"run", "run/checkpoints/best", "run/checkpoints/last/checkpoint.safetensors"}) {
    const Outcome evaluate = p.run({"evaluate", path});
    EXPECT_EQ(evaluate.status, 0) << evaluate.err;
    EXPECT_TRUE(evaluate.out.starts_with("val_loss ")) << evaluate.out;
    const Outcome inspect = p.run({"inspect", path});
    EXPECT_EQ(inspect.status, 0) << inspect.err;
    const int64_t step = path.ends_with("best") ? Checkpoint(run.best()).progress().step : 20;
    EXPECT_NE(inspect.out.find(fmt::format("step {},", step)), std::string::npos) << inspect.out;
    EXPECT_NE(inspect.out.find("block.0.attention.query.weight"), std::string::npos) << inspect.out;
  }
  // The last logged val_loss_full equals the loss that evaluate prints for the last checkpoint.
  double logged = NAN;
  std::ifstream metrics(run.metrics());
  for (std::string line; std::getline(metrics, line);)
    logged = nlohmann::json::parse(line).value("val_loss_full", logged);
  EXPECT_NEAR(std::stod(p.run({"evaluate", "run"}).out.substr(9)), logged, 1e-6);
  // The run's config.yaml trains to the same checkpoint.
  EXPECT_EQ(p.run({"train", "run/config.yaml", "--out", "again", "--quiet"}).status, 0);
  EXPECT_EQ(contents(run.last()), contents(RunFolder{p.folder / "again"}.last()));
  EXPECT_EQ(p.run({"train", "tiny.yaml", "--quiet"}).out, "runs/tiny-1\n");
  EXPECT_EQ(p.run({"train", "tiny.yaml", "--quiet"}).out, "runs/tiny-2\n");
}

TEST(Program, AnExistingRunIsNeverOverwritten) {
  const Program p;
  p.trained("run", 4);
  const std::string before = contents(RunFolder{p.folder / "run"}.last());
  expect_failure(p.run({"train", "tiny.yaml", "--out", "run"}), 2, {"run exists", "--resume"});
  expect_failure(p.run({"train", "tiny.yaml", "--resume"}), 2, {"--resume RUN"});
  expect_failure(p.run({"train", "tiny.yaml", "--resume", "--out", "other"}), 2, {"other does not exist"});
  EXPECT_EQ(contents(RunFolder{p.folder / "run"}.last()), before);
  const Outcome resumed = p.run({"train", "tiny.yaml", "--resume", "--out", "run"});
  EXPECT_EQ(resumed.status, 0);
  EXPECT_NE(resumed.err.find("going on after step 4"), std::string::npos) << resumed.err;
  std::filesystem::create_directory(p.folder / "mine");
  write(p.folder / "mine/letter.txt", "not a run");
  expect_failure(p.run({"train", "tiny.yaml", "--resume", "--out", "mine"}), 2, {"mine is no run folder"});
  std::filesystem::create_directory(p.folder / "new");
  const Outcome fresh = p.run({"train", "tiny.yaml", "--resume", "--out", "new"});
  EXPECT_NE(fresh.err.find("no checkpoint yet"), std::string::npos) << fresh.err;
  EXPECT_NE(p.run({"inspect", "run"}).out.find("step 20"), std::string::npos);
}

TEST(Program, WrongUsageIsTwoAndSaysWhere) {
  const Program p;
  for (const auto& arguments :
       std::vector<std::vector<std::string>>{{},
                                             {"frobnicate"},
                                             {"train"},
                                             {"train", "tiny.yaml", "--frobnicate"},
                                             {"generate", "run", "--max-tokens", "-1"},
                                             {"gradcheck", "tiny.yaml", "--tokens", "1"},
                                             {"gradcheck", "tiny.yaml", "--layer", ""},
                                             {"train", "tiny.yaml", "--threads", "-5"},
                                             {"config"}})
    EXPECT_EQ(p.run(arguments).status, 2) << fmt::format("{}", arguments.empty() ? "" : arguments[0]);
  write(p.folder / "bad.yaml", "model:\n  n_haeds: 2\ntrainer:\n  max_steps: many\n");
  for (const std::string command : {"train", "inspect", "gradcheck", "bench"}) {
    const Outcome o = p.run({command, "bad.yaml"});
    EXPECT_EQ(o.status, 2) << o.err;
    for (const std::string word : {"bad.yaml:2:3: ", "n_heads", "bad.yaml:4:14: "})
      EXPECT_NE(o.err.find(word), std::string::npos) << word << ": " << o.err;
  }
  EXPECT_EQ(p.run({"config", "check", "bad.yaml"}).status, 2);
  expect_failure(p.run({"train", "none.yaml"}), 2, {"none.yaml"});
  ASSERT_EQ(::mkfifo((p.folder / "pipe").c_str(), 0600), 0);
  expect_failure(p.run({"train", "pipe"}), 2, {"pipe: is a pipe"});
  expect_failure(p.run({"train", "tiny.yaml", "--set", "model.n_heads=0"}), 2, {"--set", "n_heads"});
  expect_failure(p.run({"train", "tiny.yaml", "--set", "model.d_model=10", "--set", "model.n_heads=3"}), 2,
                 {"10", "3"});
  write(p.folder / "heads.yaml", "model: {d_model: 16, n_heads: 4, attention: {n_kv_heads: 3}}\n");  // B03
  for (const std::string command : {"train", "gradcheck", "audit", "bench", "inspect"})
    expect_failure(p.run({command, "heads.yaml"}), 2,
                   {"heads.yaml", "n_heads 4 is not divisible by n_kv_heads 3"});
  expect_failure(p.run({"config", "check", "heads.yaml"}), 2, {"heads.yaml", "n_kv_heads 3"});
  expect_failure(p.run({"train", "tiny.yaml", "--set", "model.d_model=6", "--set", "model.position=rope"}), 2,
                 {"position rope", "even width, got 3"});
  expect_failure(p.run({"train", "tiny.yaml", "--device", "tpu"}), 2, {"tpu"});
  expect_failure(p.run({"train", ""}), 2, {"config", "is empty"});
  expect_failure(p.run({"evaluate", "run", "--data", ""}), 2, {"--data", "is empty"});
  expect_failure(p.run({"generate", "run", "--max-tokens", "-1"}), 2, {"whole number, 0 or more, got '-1'"});
  expect_failure(p.run({"generate", "run", "--seed", "1.5"}), 2, {"--seed", "'1.5'"});
  EXPECT_FALSE(std::filesystem::exists(p.folder / "runs"));
}

TEST(Program, AModelThatNoMachineHoldsIsRefusedWithItsBytes) {  // B23
  const Program p;
  expect_failure(
      p.run({"train", "tiny.yaml", "--set", "model.d_model=200000", "--set", "model.block_size=200000"}), 2,
      {"need about", "bytes, but this machine has"});
}

// B29: 55 characters give 6 windows of block 8, which make a batch of 4 and one of 2.
TEST(Program, AShortLastBatchIsEvaluatedToo) {
  const Program p;
  write(p.folder / "text.yaml",
        "model: {n_layers: 1, n_heads: 1, d_model: 8, block_size: 8}\n"
        "data: {source: file, path: text.txt, validation_fraction: 0.5}\ntrainer: {max_steps: 0}\n");
  std::string text;
  for (int i = 0; i < 110; ++i) text += static_cast<char>('a' + i * i % 7);
  write(p.folder / "text.txt", text);
  std::vector<double> losses;
  for (const std::string size : {"1", "4", "16"}) {
    const Outcome train = p.run({"train", "text.yaml", "--out", size, "--set", "trainer.batch_size=" + size});
    EXPECT_EQ(train.status, 0) << train.err;
    losses.push_back(std::stod(p.run({"evaluate", size}).out.substr(9)));
  }
  EXPECT_NEAR(losses[1], losses[0], 2e-6);
  EXPECT_NEAR(losses[2], losses[0], 2e-6);
}

TEST(Program, BadDataIsOneSentenceAndLeavesNoRun) {
  const Program p;
  write(p.folder / "text.yaml",
        "model: {n_layers: 1, n_heads: 1, d_model: 8, block_size: 32}\n"
        "data: {source: file, path: text.txt}\ntrainer: {max_steps: 2, batch_size: 2}\n");
  const auto train = [&] { return p.run({"train", "text.yaml", "--out", "run"}); };
  expect_failure(train(), 2, {"text.txt"});
  write(p.folder / "text.txt", "");
  expect_failure(train(), 2, {"text.txt", "empty"});
  write(p.folder / "text.txt", std::string("ab\0cd", 5) + std::string(1000, 'x'));
  expect_failure(train(), 2, {"text.txt"});
  write(p.folder / "text.txt", "a");
  expect_failure(train(), 2, {"train split has", "33"});
  write(p.folder / "text.txt", "hello world");
  expect_failure(train(), 2, {"train split has 10 tokens", "33"});
  write(p.folder / "text.txt", std::string(50, 'a') + std::string(50, 'b'));
  expect_failure(train(), 2, {"validation split has 10 tokens", "33"});
  std::filesystem::remove(p.folder / "text.txt");
  std::filesystem::create_directory(p.folder / "text.txt");
  expect_failure(train(), 2, {"text.txt"});
  EXPECT_FALSE(std::filesystem::exists(p.folder / "run"));
  // Checks a vocabulary that is too small for the data, and a path relative to the config file.
  expect_failure(p.run({"train", "tiny.yaml", "--set", "model.vocab_size=3"}), 2, {"vocab_size is 3"});
  std::filesystem::create_directory(p.folder / "sub");
  std::filesystem::rename(p.folder / "text.yaml", p.folder / "sub/text.yaml");
  write(p.folder / "sub/text.txt", std::string(400, 'a') + std::string(200, 'b'));
  EXPECT_EQ(p.run({"train", "sub/text.yaml", "--out", "run", "--quiet"}).status, 0);
  // Another text has characters that are not in the vocabulary (B30).
  write(p.folder / "other.txt", std::string(900, 'z'));
  expect_failure(p.run({"evaluate", "run", "--data", "other.txt"}), 2, {"z"});
  expect_failure(p.run({"evaluate", "run", "--data", "none.txt"}), 2, {"none.txt"});
  expect_failure(p.run({"generate", "run", "--prompt", "abz"}), 2, {"--prompt", "z"});
}

TEST(Program, OutputThatCannotBeWrittenIsNotSuccess) {
  Program p;
  p.trained();
  p.out_file = "/dev/full";
  for (const auto& arguments : std::vector<std::vector<std::string>>{{"generate", "run"}, {"doctor"}})
    expect_failure(p.run(arguments), 1, {"standard output could not be written"});
}

// A run does not depend on a reader of its progress.
TEST(Program, ProgressThatCannotBeWrittenStopsNoRun) {
  Program p;
  for (const std::string err : {"/dev/full", ""}) {
    p.err_file = err;
    const std::string name = err.empty() ? "closed" : "full";
    EXPECT_EQ(p.run({"train", "tiny.yaml", "--out", name}).status, 0);
    const RunFolder run{p.folder / name};
    EXPECT_EQ(Checkpoint(run.path).progress().step, 20);
    EXPECT_EQ(contents(run.metrics()).substr(0, 1), "{") << "messages went into a file of the run";
    EXPECT_EQ(p.run({"train", "none.yaml"}).status, 2);
  }
}

TEST(Program, AFolderThatCannotBeWrittenIsOneSentence) {
  const Program p;
  write(p.folder / "file", "");
  for (const std::string out : {"file", "file/run", "/proc/none/run"})
    expect_failure(p.run({"train", "tiny.yaml", "--out", out, "--quiet"}), out == "file" ? 2 : 1, {out});
}

TEST(Program, DamagedOrMissingCheckpointsAreOneSentence) {
  const Program p;
  p.trained();
  const auto last = RunFolder{p.folder / "run"}.last();
  const std::string good = contents(last);
  std::filesystem::create_directory(p.folder / "nothing");
  write(p.folder / "empty", "");
  write(p.folder / "text", "this is no checkpoint");
  for (const std::string command : {"generate", "evaluate", "inspect"})
    for (const std::string path : {"missing", "nothing", "empty", "text"})
      expect_failure(p.run({command, path}), 2, {path});
  write(last, good.substr(0, good.size() / 2));
  for (const std::string command : {"generate", "evaluate", "inspect"})
    expect_failure(p.run({command, "run"}), 1, {"checkpoint.safetensors"});
  expect_failure(p.run({"train", "tiny.yaml", "--out", "run", "--resume"}), 1, {"checkpoint.safetensors"});
  EXPECT_EQ(contents(last), good.substr(0, good.size() / 2))
      << "nothing is written over what might be rescued";
}

TEST(Program, AFullDiskFailsAndKeepsTheLastCheckpoint) {
  Program p;
  p.trained();
  const std::string before = contents(RunFolder{p.folder / "run"}.last());
  rlimit old{};
  getrlimit(RLIMIT_FSIZE, &old);
  const rlimit small{before.size() / 2, old.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const Outcome o = p.run({"train", "tiny.yaml", "--out", "run", "--resume", "--quiet"});
  setrlimit(RLIMIT_FSIZE, &old);
  expect_failure(o, 1, {"checkpoint.safetensors", "cannot be written"});
  EXPECT_EQ(contents(RunFolder{p.folder / "run"}.last()), before);
  EXPECT_EQ(p.run({"generate", "run"}).status, 0);
}

TEST(Program, GeneratesWithEveryTemperatureThatMeansSomething) {
  const Program p;
  p.trained();
  const auto generate = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"generate", "run", "--max-tokens", "30"});
    return p.run(more);
  };
  const std::string greedy = generate({"--prompt", "a", "--temperature", "0"}).out;
  EXPECT_EQ(greedy.size(), 32u) << greedy;
  EXPECT_EQ(greedy[0], 'a');
  for (const std::string t : {"0", "1e-8"})
    for (const std::string seed : {"1", "2"})
      EXPECT_EQ(generate({"--prompt", "a", "--temperature", t, "--seed", seed}).out, greedy);
  EXPECT_EQ(generate({"--prompt", "a", "--top-k", "1"}).out, greedy);
  EXPECT_EQ(generate({"--prompt", "a", "--seed", "5"}).out, generate({"--prompt", "a", "--seed", "5"}).out);
  EXPECT_NE(generate({"--prompt", "a", "--seed", "5"}).out, generate({"--prompt", "a", "--seed", "6"}).out);
  EXPECT_EQ(generate({"--prompt", "a", "--top-k", "100000"}).out, generate({"--prompt", "a"}).out);
  EXPECT_EQ(p.run({"generate", "run", "--prompt", "a", "--max-tokens", "010"}).out.size(), 12u)
      << "ten, not eight";
  EXPECT_EQ(p.run({"generate", "run", "--prompt", "a", "--max-tokens", "0"}).out, "a\n");
  for (const std::string t : {"-1", "nan", "inf", "", "warm"})
    expect_failure(generate({"--temperature", t}), 2, {"temperature"});
  expect_failure(generate({"--top-k", "-1"}), 2, {"--top-k", "0 or more"});
  const Outcome unprompted = generate({}), empty = generate({"--prompt", ""});
  EXPECT_EQ(unprompted.out, empty.out);
  EXPECT_EQ(empty.status, 0) << empty.err;
  EXPECT_EQ(generate({"--prompt", "a a a a a a a a a a a a"}).status, 0) << "longer than the block";
}

TEST(Program, InterruptedItSavesAndGoesOnLater) {
  const Program p;
  const RunFolder run{p.folder / "run"};
  const pid_t child = p.start({"train", "tiny.yaml", "--out", "run", "--set", "trainer.max_steps=1000000"});
  // It handles signals by then.
  ASSERT_TRUE(p.wait(child, [&] { return std::filesystem::exists(run.last()); }));
  ::kill(child, SIGINT);
  const Outcome o = p.finish(child);
  EXPECT_EQ(o.status, 130) << o.err;
  EXPECT_NE(o.err.find("interrupted after"), std::string::npos) << o.err;
  const int64_t done = Checkpoint(run.path).progress().step;
  EXPECT_GE(done, 5);
  const Outcome resumed = p.run(
      {"train", "--resume", "run", "--quiet", "--set", "trainer.max_steps=" + std::to_string(done + 3)});
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_EQ(Checkpoint(run.path).progress().step, done + 3);
}

TEST(Program, TerminatedItSavesToo) {
  const Program p;
  for (const int signal : {SIGTERM, SIGHUP}) {
    const std::string name = "run" + std::to_string(signal);
    const RunFolder run{p.folder / name};
    const pid_t child = p.start({"train", "tiny.yaml", "--out", name, "--quiet", "--set",
                                 "trainer.max_steps=1000000", "--set", "trainer.checkpoint_interval=0"});
    ASSERT_TRUE(p.wait(child, [&] { return std::filesystem::exists(run.best()); }));
    ::kill(child, signal);
    EXPECT_EQ(p.finish(child).status, 128 + signal);
    EXPECT_TRUE(std::filesystem::exists(run.last()));
  }
}

// A run that is killed before its first regular checkpoint resumes from its best one and keeps its metrics.
TEST(Program, ARunWithoutALastCheckpointGoesOnFromItsBest) {
  const Program p;
  const RunFolder run{p.folder / "run"};
  const pid_t child = p.start({"train", "tiny.yaml", "--out", "run", "--quiet", "--set",
                               "trainer.max_steps=1000000", "--set", "trainer.checkpoint_interval=0", "--set",
                               "schedule.kind=constant"});
  ASSERT_TRUE(p.wait(child, [&] { return std::filesystem::exists(run.best()); }));
  ::kill(child, SIGKILL);
  p.finish(child);
  ASSERT_FALSE(std::filesystem::exists(run.last()));
  const int64_t step = Checkpoint(run.best()).progress().step;
  const Outcome o =
      p.run({"train", "--resume", "run", "--set", "trainer.max_steps=" + std::to_string(step + 20)});
  EXPECT_EQ(o.status, 0) << o.err;
  EXPECT_NE(o.err.find(fmt::format("going on after step {}, of the best checkpoint", step)),
            std::string::npos)
      << o.err;
  const Outcome whole =
      p.run({"train", "tiny.yaml", "--out", "never", "--quiet", "--set", "schedule.kind=constant", "--set",
             "trainer.checkpoint_interval=0", "--set", "trainer.max_steps=" + std::to_string(step + 20)});
  EXPECT_EQ(whole.status, 0) << whole.err;
  const RunFolder never{p.folder / "never"};
  EXPECT_EQ(contents(run.last()), contents(never.last()));
  const auto lines = [](const RunFolder& of) {
    std::vector<nlohmann::json> all;
    std::ifstream file(of.metrics());
    for (std::string line; std::getline(file, line);)
      all.emplace_back(nlohmann::json::parse(line)).erase("tokens_per_s");
    return all;
  };
  EXPECT_EQ(lines(run), lines(never));
}

TEST(Program, AFolderWithAConfigOfTheUsersIsNoRun) {
  const Program p;
  std::filesystem::create_directory(p.folder / "mine");
  write(p.folder / "mine/config.yaml", "# my notes\n" + std::string(kTinyRun));
  write(p.folder / "mine/metrics.jsonl", "my own");
  expect_failure(p.run({"train", "mine/config.yaml", "--resume", "--out", "mine"}), 2,
                 {"mine is no run folder"});
  EXPECT_EQ(contents(p.folder / "mine/metrics.jsonl"), "my own");
  EXPECT_EQ(contents(p.folder / "mine/config.yaml").substr(0, 10), "# my notes");
}

TEST(Program, ResumingSaysWhatIsOtherThanBefore) {
  const Program p;
  p.trained("run", 20);
  expect_failure(p.run({"train", "tiny.yaml", "--out", "run", "--resume", "--set", "model.n_heads=4"}), 2,
                 {"model.n_heads is 4, was 2"});
  const Outcome o =
      p.run({"train", "tiny.yaml", "--out", "run", "--resume", "--set", "trainer.max_steps=21"});
  EXPECT_EQ(o.status, 0) << o.err;
  EXPECT_NE(o.err.find("trainer.max_steps is 21, was 20"), std::string::npos) << o.err;
}

TEST(Program, ALossThatIsNotFiniteEndsTheRunWithTheStep) {
  const Program p;
  const Outcome o = p.run({"train", "tiny.yaml", "--out", "run", "--quiet", "--set", "model.init_std=1e38"});
  expect_failure(o, 1, {"[train] at step 1 the loss is nan", "first of all [", "no weight was changed"});
}

TEST(Program, ExplainsItselfAndItsConfigs) {
  const Program p;
  EXPECT_TRUE(p.run({"--version"}).out.starts_with("bonsai "));
  const Outcome help = p.run({"--help"});
  EXPECT_EQ(help.status, 0);
  for (const std::string command :
       {"train", "generate", "evaluate", "inspect", "gradcheck", "audit", "bench", "config", "doctor"})
    EXPECT_NE(help.out.find(command), std::string::npos) << command;
  EXPECT_NE(p.run({"doctor"}).out.find("BLAS"), std::string::npos);
  const Outcome check = p.run({"config", "check", "tiny.yaml", "--set", "schedule.learning_rate=2e-3"});
  EXPECT_EQ(check.status, 0) << check.err;
  EXPECT_NE(check.out.find("learning_rate: 0.002"), std::string::npos) << check.out;
  const Outcome explain = p.run({"config", "explain", "tiny.yaml"});
  EXPECT_NE(explain.out.find("optimizer steps"), std::string::npos) << explain.out;
  for (const std::string task : {"language_model", "reverse"}) {
    const Outcome schema = p.run({"config", "schema", task});
    EXPECT_EQ(schema.status, 0) << schema.err;
    EXPECT_FALSE(nlohmann::json::parse(schema.out, nullptr, false).is_discarded()) << schema.out;
  }
}

// If the CUDA device cannot be used, the program says why and creates no files.
TEST(Program, ACudaDeviceThatIsNotThereIsOneSentence) {
  const Program p;
  ::setenv("BONSAI_CUDA_LIBRARY", "/nowhere/libbonsai_cuda.so", 1);
  for (const std::string command : {"train", "bench", "gradcheck", "audit"}) {
    const Outcome o = p.run({command, "tiny.yaml", "--device", "cuda"});
    expect_failure(
        o, 1,
        {"[device] cuda cannot be used: the CUDA library cannot be loaded: /nowhere/libbonsai_cuda.so",
         "correct BONSAI_CUDA_LIBRARY or unset it"});
  }
  EXPECT_FALSE(std::filesystem::exists(p.folder / "runs"));
  const std::string doctor = p.run({"doctor"}).out;
  EXPECT_NE(doctor.find("cuda        none: the CUDA library cannot be loaded: /nowhere"), std::string::npos)
      << doctor;
  ::unsetenv("BONSAI_CUDA_LIBRARY");
  for (const std::string device :
       {"", "gpu", "cuda:", "cuda:x", "cuda:+0", "cuda:-0", "cuda:0.0", "cuda:128", "cpu:0"})
    for (const std::string command : {"train", "evaluate"})
      expect_failure(p.run({command, "tiny.yaml", "--device", device}), 2,
                     {"--device: must be cpu, cuda or cuda:N with N from 0 to 127, got '" + device + "'"});
}

TEST(Program, ChecksGradientsAndTimesStepsOfAConfig) {
  const Program p;
  const Outcome gradcheck = p.run({"gradcheck", "tiny.yaml"});
  EXPECT_EQ(gradcheck.status, 0) << gradcheck.out << gradcheck.err;
  EXPECT_NE(gradcheck.out.find("gradcheck tiny.yaml: passed (8 ops, 17 layers, 20 tensors"),
            std::string::npos)
      << gradcheck.out;
  EXPECT_NE(gradcheck.out.find("taylor tiny.yaml: passed, slopes along all tensors as h halves: "),
            std::string::npos)
      << gradcheck.out;
  const Outcome layer =
      p.run({"gradcheck", "tiny.yaml", "--set", "model.mlp=swiglu", "--layer", "block.0.mlp"});
  EXPECT_NE(layer.out.find("gradcheck block.0.mlp.gate: passed"), std::string::npos)
      << layer.out << layer.err;
  EXPECT_EQ(layer.out.find("attention"), std::string::npos) << layer.out;
  expect_failure(p.run({"gradcheck", "tiny.yaml", "--layer", "block.7"}), 2,
                 {"the model has no layer block.7"});
  const Outcome ops = p.run({"gradcheck"});
  EXPECT_EQ(ops.status, 0) << ops.err;
  EXPECT_NE(ops.out.find("softmax: passed\n"), std::string::npos) << ops.out;
  EXPECT_NE(ops.out.find(" rows of the op table, 0 failed\n"), std::string::npos) << ops.out;
  EXPECT_EQ(p.run({"gradcheck", "--op", "rms_norm"}).out,
            "rms_norm: passed\n1 rows of the op table, 0 failed\n");
  expect_failure(p.run({"gradcheck", "--op", "softmx"}), 2,
                 {"the op table has no softmx; did you mean softmax?"});
  expect_failure(p.run({"gradcheck", "--op", "zzzzzz"}), 2,
                 {"the op table has no zzzzzz; add_op_case() adds a row"});
  expect_failure(p.run({"gradcheck", "tiny.yaml", "--op", "softmax"}), 2, {"--op"});
  expect_failure(p.run({"gradcheck", "--layer", "block.0"}), 2, {"--layer requires config"});
  const Outcome audit = p.run({"audit", "tiny.yaml"});
  EXPECT_EQ(audit.status, 0) << audit.err;
  EXPECT_NE(audit.out.find("audit tiny.yaml: passed (8 of 8 positions"), std::string::npos) << audit.out;
  const Outcome bench = p.run({"bench", "tiny.yaml", "--steps", "3", "--json"});
  EXPECT_EQ(bench.status, 0) << bench.err;
  EXPECT_EQ(nlohmann::json::parse(bench.out)["steps"], 3) << bench.out;
  expect_failure(p.run({"bench", "tiny.yaml", "--seconds", "nan"}), 2, {"--seconds"});
  EXPECT_EQ(p.run({"inspect", "tiny.yaml"}).status, 0);
  p.trained("run");
  expect_failure(p.run({"inspect", "run", "--set", "model.n_layers=5"}), 2, {"--set", "run is a checkpoint"});
  // Each row of attention weights sums to 1, and no position sees its future.
  const Outcome weights = p.run({"inspect", "run", "--attention", "a bat", "--json"});
  EXPECT_EQ(weights.status, 0) << weights.err;
  const auto seen = nlohmann::json::parse(weights.out);
  EXPECT_EQ(seen["tokens"].size(), 5u);
  EXPECT_EQ(seen["weights"]["block.0.attention"].size(), 2u) << "heads";
  for (const auto& head : seen["weights"]["block.0.attention"])
    for (size_t i = 0; i < 5; ++i) {
      double total = 0;
      for (size_t j = 0; j < 5; ++j) {
        total += head[i][j].get<double>();
        EXPECT_TRUE(j <= i || head[i][j] == 0.0) << i << " sees " << j;
      }
      EXPECT_NEAR(total, 1, 1e-6);
    }
  expect_failure(p.run({"inspect", "run", "--attention", "a bat and more of it"}), 2,
                 {"20 tokens, more than block_size 8"});
  expect_failure(p.run({"inspect", "run", "--attention", "Z"}), 2, {"--attention", "'Z'"});
  expect_failure(p.run({"inspect", "run", "--attention", "a", "--layer", "block.9"}), 2,
                 {"no attention layer is called block.9"});
  expect_failure(p.run({"inspect", "tiny.yaml", "--attention", "a"}), 2, {"needs a trained model"});
}

}  // namespace
}  // namespace bonsai::test
