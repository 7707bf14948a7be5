// Files written by earlier versions. tests/fixtures/format_1 is a run of three steps from before the keys
// were renamed, in f64, with the keys deviation, soft_cap and accumulation set.
#include "bonsai/tests/program.h"

namespace bonsai::test {
namespace {

namespace fs = std::filesystem;

struct Old : Program {
  Old() {
    fs::copy(BONSAI_SOURCE_DIR "/tests/fixtures/format_1", folder / "run", fs::copy_options::recursive);
  }
};

// The values of "train_loss" and "val_loss" in metrics.jsonl, in order.
std::vector<double> losses(const fs::path& path) {
  std::vector<double> all;
  std::istringstream lines(contents(path));
  for (std::string line; std::getline(lines, line);)
    if (const size_t at = line.find("_loss\":"); at != line.npos)
      all.push_back(std::stod(line.substr(at + 7)));
  return all;
}

TEST(Convert, AnOldFileIsRefusedWithTheCommandThatRewritesIt) {
  const Old p;
  for (const char* command : {"inspect", "evaluate", "generate"})
    expect_failure(p.run({command, "run"}), 1,
                   {"was written by an earlier version; bonsai convert rewrites it"});
  const Outcome o = p.run({"train", "--resume", "run"});
  EXPECT_EQ(o.status, 2);
  for (const char* words :
       {"model.deviation is not a key of model; it is called init_std now",
        "it is called attention.logit_softcap now",
        "trainer.accumulation is not a key of trainer; it is called gradient_accumulation now"})
    EXPECT_NE(o.err.find(words), o.err.npos) << words << " is not in " << o.err;
}

TEST(Convert, AConvertedRunGoesOnAsTheOldProgramDid) {
  const Old p;
  EXPECT_EQ(p.run({"convert", "run"}).out, "run/checkpoints/last/checkpoint.safetensors\nrun/config.yaml\n");
  const Outcome again = p.run({"convert", "run"});
  EXPECT_TRUE(again.status == 0 && again.out.empty()) << again.out << again.err;
  ASSERT_EQ(p.run({"train", "--resume", "run", "--quiet", "--set", "trainer.max_steps=6"}).status, 0);
  const std::vector<double> expected = {  // printed by the program that wrote the fixture
      3.407934177958123, 3.2870463403896855, 3.411212193631455,  3.2456748011908334,
      3.20952182286445,  3.2389299098778146, 3.1876294451823526, 3.2086105287754765};
  const std::vector<double> found = losses(p.folder / "run/metrics.jsonl");
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-10) << i;
}

TEST(Convert, RefusesWhatIsDamagedOrNotBonsais) {
  const Old p;
  const fs::path file = p.folder / "run/checkpoints/last/checkpoint.safetensors";
  std::string bytes = contents(file);
  bytes[bytes.size() - 3] ^= 1;
  write(file, bytes);
  expect_failure(p.run({"convert", "run"}), 1, {"is damaged: its checksum does not match"});
  EXPECT_EQ(contents(file), bytes);
  expect_failure(p.run({"convert", "tiny.yaml"}), 2, {"tiny.yaml is neither a run folder nor a checkpoint"});
  expect_failure(p.run({"convert", "nowhere"}), 2, {"nowhere is neither"});
  fs::copy(BONSAI_SOURCE_DIR "/tests/fixtures/models/gpt2/model.safetensors", p.folder / "gpt2.safetensors");
  expect_failure(p.run({"convert", "gpt2.safetensors"}), 1, {"is not a checkpoint of Bonsai"});
}

}  // namespace
}  // namespace bonsai::test
