// Files that lie about their size, paths that are not regular files, and limits on memory: each must give one
// short, printable error message quickly, without allocating memory that the file cannot fill.
#include <sys/stat.h>

#include "bonsai/framework/core/quote.h"
#include "bonsai/tests/program.h"

namespace bonsai::test {
namespace {

// Limits on CPU time and, without sanitizers, on memory.
constexpr rlim_t kSeconds = 60, kMemory = rlim_t{1} << 30;

std::string hostile(const std::string& name) {
  return BONSAI_SOURCE_DIR "/tests/fuzz/corpus/checkpoint/" + name;
}

struct Limited : Program {
  explicit Limited([[maybe_unused]] rlim_t memory = kMemory) {
    limits = {{RLIMIT_CPU, kSeconds}};
#ifndef BONSAI_SANITIZED
    limits.emplace_back(RLIMIT_AS, memory);
#endif
  }
};

// The message is short and has no control characters.
void expect_short_line(const Outcome& o) {
  EXPECT_LT(o.err.size(), 2000u);
  for (const char c : o.err)
    EXPECT_TRUE(c == '\n' || (c >= ' ' && c != 0x7F)) << static_cast<int>(c) << " in " << o.err;
}

TEST(Hostile, ACheckpointWithoutTheTensorsThatItsConfigAsksForIsRefusedAtOnce) {  // B70
  const Limited p;
  for (const char* name : {"tiny_no_tensors_d20000", "tiny_no_tensors_layers_1e5", "cfg_layers_1e9"})
    for (const char* command : {"inspect", "generate", "evaluate"})
      expect_failure(p.run({command, hostile(std::string(name) + ".safetensors")}), 1,
                     {name, "has no tensor", "which its model needs"});
  // Sinusoidal positions have no tensor to compare with.
  for (const char* command : {"inspect", "generate", "evaluate"})
    expect_failure(p.run({command, hostile("cfg_sinus_1e9.safetensors")}), 1,
                   {"position.weight", "does not have"});
}

TEST(Hostile, AnIntegerTensorIsNoParameter) {  // B77
  expect_failure(Program().run({"inspect", hostile("dtype_i32.safetensors")}), 1,
                 {"tensor \"block.0.attention.key.bias\" is i32", "f32"});
}

TEST(Hostile, ATensorsNameDoesNotDriveTheTerminal) {  // B76
  const Program p;
  const Outcome o = p.run({"inspect", hostile("evil_name_short.safetensors")});
  expect_failure(o, 1, {"\\u001b"});
  expect_short_line(o);
}

TEST(Hostile, SpecialFilesAreOneSentence) {  // B74
  const Limited p;
  ASSERT_EQ(::mkfifo((p.folder / "pipe").c_str(), 0600), 0);
  std::filesystem::create_symlink("/dev/zero", p.folder / "zero");
  std::filesystem::create_directory(p.folder / "folder");
  for (const std::string name : {"pipe", "zero", "folder"}) {
    for (const char* command : {"inspect", "generate", "evaluate"})
      expect_failure(p.run({command, name}), 2, {name});
    expect_failure(p.run({"train", name}), 2, {name});
    write(p.folder / "text.yaml", "data: {source: file, path: " + name + "}\n");
    expect_failure(p.run({"train", "text.yaml"}), 2, {name});
  }
}

#ifndef BONSAI_SANITIZED
TEST(Hostile, UnderALimitOnAddressSpaceItRunsOrSaysSo) {  // B73
  for (const rlim_t megabytes : {80, 100, 150, 300, 400}) {
    const Limited p(megabytes << 20);
    const Outcome doctor = p.run({"doctor"});
    EXPECT_EQ(doctor.status, 0) << megabytes << ": " << doctor.err;
    EXPECT_NE(doctor.out.find("BLAS"), std::string::npos) << doctor.out;
    EXPECT_TRUE(megabytes > 100 || doctor.err.find("its own kernels") != std::string::npos) << doctor.err;
    const Outcome train = p.run({"train", "tiny.yaml", "--out", "run", "--quiet"});
    EXPECT_TRUE(train.status == 0
                || (train.status == 1 && train.err.find("not enough memory") != std::string::npos))
        << megabytes << ": " << train.status << " " << train.err;
  }
}
#endif

}  // namespace
}  // namespace bonsai::test
