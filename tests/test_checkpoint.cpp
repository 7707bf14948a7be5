// Checkpoint files: a failed save loses nothing, damage is detected, and tied tables stay tied.
#include <sys/resource.h>

#include <array>
#include <csignal>

#include "bonsai/framework/io/safetensors.h"
#include "bonsai/layers/model/transformer.h"
#include "bonsai/tests/training.h"

namespace bonsai::test {
namespace {

size_t files_in(const std::filesystem::path& folder) {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

// Limits files of this process to `bytes`, which acts like a full disk.
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
  EXPECT_NE(error_of([&] { save_checkpoint("/dev/full", trainer, {}); })
            .find("cannot be replaced: it is not a regular file"),
            std::string::npos);
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/full"));
}

// The run ends with the error, and its earlier checkpoint is intact.
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

// A good checkpoint with changed tensors and metadata and the matching checksum.
struct Changed {
  explicit Changed(const std::filesystem::path& good) {
    const SafetensorsFile file(good);
    metadata = file.metadata();
    for (const std::string& name : file.names()) tensors[name] = file.read(name);
  }
  void set(const std::string& was, const std::string& now) {
    std::string& config = metadata.at("config");
    ASSERT_NE(config.find(was), std::string::npos) << was;
    config.replace(config.find(was), was.size(), now);
  }
  // The error when the checkpoint is read and its model is built and loaded.
  std::string error(const std::filesystem::path& path) {
    metadata["checksum"] = checkpoint_checksum(tensors, metadata);
    write_safetensors(path, {tensors.begin(), tensors.end()}, metadata);
    return error_of([&] {
      const Checkpoint checkpoint(path);
      Module root(checkpoint.build());
      checkpoint.load_model(*checkpoint.config().model.make(&root));
    });
  }

  std::map<std::string, Tensor> tensors;
  std::map<std::string, std::string> metadata;
};

// Whatever sizes the config claims, building ends at the first parameter that the file lacks, before its
// memory is allocated.
TEST(Checkpoint, AModelLargerThanTheFileIsNotBuilt) {  // B70
  const Folder folder;
  const TinyRun run;
  Trainer trainer(run.config);
  const auto good = folder / "good.safetensors", claims = folder / "claims.safetensors";
  save_checkpoint(good, trainer, {.step = 1});
  EXPECT_EQ(Changed(good).error(claims), "no error");
  const std::vector<std::array<std::string, 3>> cases = {
      {"n_layers: 1\n", "n_layers: 1000000000\n", "block.1."},
      {"n_encoder_layers: 0\n", "n_encoder_layers: 1000000000\n", "cross"},
      {"d_hidden: 0\n", "d_hidden: 1000000000000\n", "block.0.mlp."},
      {"d_model: 16\n", "d_model: 1000000000\n", "token.weight"},
      {"block_size: 8\n", "block_size: 1000000000000\n", "position.weight"},
      {"tie_embeddings: true\n", "tie_embeddings: false\n", "head.weight"},
      {"qk_norm: false\n", "qk_norm: true\n", "norm"}};
  for (const auto& [was, now, tensor] : cases) {
    Changed changed(good);
    changed.set(was, now);
    const std::string error = changed.error(claims);
    for (const std::string& word : {std::string("claims.safetensors"), std::string("has no tensor"), tensor})
      EXPECT_NE(error.find(word), std::string::npos) << now << ": " << error;
  }
  // Sinusoidal positions have no tensor to compare with; only the positions in use are computed.
  Changed vast(good);
  vast.set("position: learned\n", "position: sinusoidal\n");
  vast.set("block_size: 8\n", "block_size: 1000000000000\n");
  EXPECT_NE(vast.error(claims).find("position.weight\" (8,16), which this model does not have"),
            std::string::npos);
  for (const char* prefix : {"", "adamw.m.", "adamw.v."})
    vast.tensors.erase(std::string(prefix) + "position.weight");
  EXPECT_EQ(vast.error(claims), "no error");
}

TEST(Checkpoint, TensorsOfAnotherTypeOrWithoutAParameterAreRefused) {  // B77, B76
  const Folder folder;
  const TinyRun run;
  Trainer trainer(run.config);
  save_checkpoint(folder / "good", trainer, {.step = 1});
  const auto error_with = [&](const std::string& name, const Tensor& value) {
    Changed changed(folder / "good");
    changed.tensors[name] = value;
    return changed.error(folder / "bad");
  };
  for (const std::string name : {"norm.weight", "adamw.m.norm.weight", "adamw.v.norm.weight"})
    for (const DType dtype : {DType::i32, DType::f64}) {
      const std::string error = error_with(name, zeros({16}, dtype));
      EXPECT_NE(error.find(fmt::format("tensor \"{}\" is {}", name, name_of(dtype))), std::string::npos)
          << error;
    }
  for (const std::string name : {"adamw.m.nothing", "adamw.nothing", "nothing\n\x1b[2J"}) {
    const std::string error = error_with(name, zeros({1}));
    EXPECT_NE(error.find("nothing"), std::string::npos) << error;
    EXPECT_EQ(error.find_first_of("\n\x1b"), std::string::npos) << error;
  }
}

TEST(Checkpoint, ItsMetadataIsShownEscapedAndShort) {  // B76, B69
  const Folder folder;
  const TinyRun run;
  Trainer trainer(run.config);
  save_checkpoint(folder / "good", trainer, {.step = 1});
  const std::string evil = "\x1b[2J\n" + std::string(30000, 'x');
  for (const std::string key : {"step", "best_loss", "evaluations_without_better", "config"}) {
    Changed changed(folder / "good");
    changed.metadata[key] = key == "config" ? "\"\\e[2J\\n" + std::string(900, 'x') + "\": 1\n" : evil;
    const std::string error = changed.error(folder / "bad");
    EXPECT_NE(error.find("\\u001b[2J\\nxx"), std::string::npos) << key << ": " << error.substr(0, 1000);
    EXPECT_LT(error.size(), 1500u) << key;
    EXPECT_EQ(error.find_first_of("\x1b\n"), std::string::npos) << key << ": " << error;
  }
  Changed nested(folder / "good");
  nested.metadata["tokenizer"] = "{\"kind\":" + std::string(200000, '[') + std::string(200000, ']') + "}";
  EXPECT_NE(nested.error(folder / "bad").find("nested more than"), std::string::npos);
  nested.metadata["tokenizer"] = "{\"kind\":\"\\u001b[2J\\n" + std::string(30000, 'x') + "\"}";
  const std::string error = nested.error(folder / "bad");
  EXPECT_NE(error.find("\"\\u001b[2J\\nxx"), std::string::npos) << error.substr(0, 1000);
  EXPECT_LT(error.size(), 1000u);
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
  // Head and embedding share the table: setting it to 0 makes all logits equal.
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

// The checksum is right (B77).
TEST(Checkpoint, ATokenizerOfAnotherSizeThanTheModelIsRefused) {
  const Folder folder;
  for (const int64_t letters_more : {-1, 1}) {
    TinyRun run;
    Trainer trainer(run.config);
    const int64_t size = run.config.model.vocab_size + letters_more;
    run.task->other_tokenizer = letters(size, "");
    save_checkpoint(folder / "file", trainer, {});
    const std::string error = error_of([&] { const Checkpoint checkpoint(folder / "file"); });
    EXPECT_NE(error.find(fmt::format("its tokenizer has {} tokens, but its model has a vocab_size of {}",
                                     size,
                                     run.config.model.vocab_size)),
              std::string::npos)
        << error;
  }
}

}  // namespace
}  // namespace bonsai::test
