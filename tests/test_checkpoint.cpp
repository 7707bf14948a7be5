// Checkpoint files: a failed save costs nothing, damage is noticed, tied tables stay tied.
#include <sys/resource.h>

#include <csignal>

#include "framework/io/safetensors.h"
#include "tests/training.h"

namespace bonsai::test {
namespace {

size_t files_in(const std::filesystem::path& folder) {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

// Files of this process end at `bytes`, as on a full disk.
class FileLimit {
 public:
  explicit FileLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit lower{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &lower);
  }
  ~FileLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST(Checkpoint, AFailedSaveIsReportedAndLeavesTheOldOne) {
  const Folder folder;
  const TinyRun run;
  Trainer trainer(run.config);
  const auto file = folder / "checkpoint.safetensors";
  save_checkpoint(file, trainer, {.step = 1});
  const std::string before = contents(file);
  trainer.step(0);
  for (const rlim_t limit : {rlim_t{0}, rlim_t{100}, rlim_t{before.size() / 2}, rlim_t{before.size() - 1}}) {
    const std::string error = error_of([&] {
      const FileLimit full(limit);
      save_checkpoint(file, trainer, {.step = 2});
    });
    EXPECT_NE(error.find(file.string()), std::string::npos) << error;
    EXPECT_EQ(contents(file), before);
    EXPECT_EQ(files_in(folder.path()), 1u) << "something is left that could be taken for a checkpoint";
  }
  EXPECT_EQ(Checkpoint(folder.path()).progress().step, 1);
  EXPECT_NE(error_of([&] { save_checkpoint("/dev/full", trainer, {}); }).find("cannot be replaced: it is not a regular file"),
            std::string::npos);
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/full"));
}

// The whole run ends with the error; what it saved before is there.
TEST(Checkpoint, ARunOnAFullDiskFailsAndItsLastCheckpointGoesOn) {
  const Folder folder;
  TinyRun().train(folder / "whole");
  const TinyRun run;
  const auto size = std::filesystem::file_size(RunFolder{folder / "whole"}.last());
  std::optional<FileLimit> full;
  run.task->on_batch = [&](const BatchIndex& index) {
    if (index.step == 7) full.emplace(size - 1);
  };
  const std::string error = error_of([&] { run.train(folder / "run"); });
  full.reset();
  EXPECT_NE(error.find("cannot be written"), std::string::npos) << error;
  EXPECT_EQ(Checkpoint(folder / "run").progress().step, 5);
  TinyRun().train(folder / "run", true);
  EXPECT_EQ(contents(RunFolder{folder / "run"}.last()), contents(RunFolder{folder / "whole"}.last()));
}

TEST(Checkpoint, ACutOrChangedFileIsRefused) {
  const Folder folder;
  const TinyRun run;
  Trainer trainer(run.config);
  const auto good = folder / "good.safetensors", bad = folder / "bad.safetensors";
  save_checkpoint(good, trainer, {.step = 1});
  const std::string bytes = contents(good);
  const auto refused = [&](const std::string& changed, const std::string& how) {
    write(bad, changed);
    const std::string error = error_of([&] { const Checkpoint checkpoint(bad); });
    EXPECT_NE(error, "no error") << how;
    EXPECT_NE(error.find("bad.safetensors"), std::string::npos) << how << ": " << error;
  };
  for (size_t i = 0; i < 20; ++i)
    refused(bytes.substr(0, bytes.size() * i / 20), fmt::format("cut at {}/20", i));
  refused(bytes.substr(0, bytes.size() - 1), "without the last byte");
  refused(bytes + "x", "with a byte too many");
  const auto flipped = [&](size_t at, int bit) {
    std::string changed = bytes;
    changed[at] = static_cast<char>(changed[at] ^ (1 << bit));
    refused(changed, fmt::format("bit {} of byte {} flipped", bit, at));
  };
  for (size_t i = 0; i < 20; ++i) flipped(bytes.size() * i / 20 + i, static_cast<int>(i % 8));
  for (size_t at = 0; at < 4000; at += 13) flipped(at, static_cast<int>(at % 8));  // the header
}

TEST(Checkpoint, TiedTablesComeBackTied) {
  const Folder folder;
  const TinyRun run;
  Trainer trainer(run.config);
  trainer.step(0);
  const auto file = folder / "1.safetensors", again = folder / "2.safetensors";
  save_checkpoint(file, trainer, {.step = 1});
  const auto names = SafetensorsFile(file).names();
  EXPECT_EQ(std::count_if(names.begin(), names.end(),
                          [](const auto& n) { return n.find("head") != std::string::npos; }),
            0);

  TinyRun other({"trainer.seed=7"});
  Trainer loaded(other.config);
  Checkpoint(file).load(loaded);
  const auto logits = [](Trainer& t) {
    Context context;
    return t.model()(tensor({1, 5}, {0, 1, 2, 3, 4}, DType::i32), context);
  };
  EXPECT_TRUE(same_bits(logits(trainer), logits(loaded)));
  loaded.step(1);
  // The head uses what the embedding uses: setting the table to 0 makes all logits equal.
  save_checkpoint(again, loaded, {.step = 2});
  EXPECT_EQ(std::filesystem::file_size(file), std::filesystem::file_size(again));
  Tensor& table = loaded.model().parameter("token.weight").value;
  copy_into(zeros_like(table), table);
  for (const double v : logits(loaded).values()) EXPECT_EQ(v, 0);
}

TEST(Checkpoint, ATiedFileDoesNotFitAnUntiedModelNorTheReverse) {
  const Folder folder;
  TinyRun tied, untied({"model.tie_embeddings=false"});
  Trainer a(tied.config), b(untied.config);
  save_checkpoint(folder / "tied", a, {});
  save_checkpoint(folder / "untied", b, {});
  const Tensor before = b.arena().values().copy();
  EXPECT_NE(error_of([&] { Checkpoint(folder / "tied").load(b); }).find("head.weight"), std::string::npos);
  EXPECT_NE(error_of([&] { Checkpoint(folder / "untied").load(a); }).find("head.weight"), std::string::npos);
  EXPECT_TRUE(same_bits(b.arena().values(), before)) << "a refused file must not be loaded in part";
}

// With a checksum that is right (B77).
TEST(Checkpoint, ATokenizerOfAnotherSizeThanTheModelIsRefused) {
  const Folder folder;
  for (const int64_t letters_more : {-1, 1}) {
    TinyRun run;
    Trainer trainer(run.config);
    const int64_t size = run.config.model.vocab_size + letters_more;
    run.task->other_tokenizer = letters(size, "");
    save_checkpoint(folder / "file", trainer, {});
    const std::string error = error_of([&] { const Checkpoint checkpoint(folder / "file"); });
    EXPECT_NE(error.find(fmt::format("its tokenizer has {} tokens, but its model has a vocab_size of {}", size,
                                     run.config.model.vocab_size)),
              std::string::npos)
        << error;
  }
}

}  // namespace
}  // namespace bonsai::test
