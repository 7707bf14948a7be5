// A file with false information must give a clear error, and a failed save must not lose the file that it
// would have replaced.
#include "bonsai/framework/io/safetensors.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <csignal>
#include <cstring>
#include <fstream>
#include <limits>

#include "bonsai/tests/folder.h"
#include "bonsai/tests/support.h"

// Records and then executes the calls of the library that determine which files survive a power failure.
struct FileCall {
  std::string name;
  ino_t file = 0;
  off_t bytes = 0;
};
std::vector<FileCall> file_calls;

void note_call(const char* name,
               const struct stat& status) { file_calls.push_back({name, status.st_ino, status.st_size}); }

extern "C" int fsync(int file) noexcept {
  struct stat status = {};
  ::fstat(file, &status);
  note_call(S_ISDIR(status.st_mode) ? "fsync of a folder" : "fsync", status);
  return static_cast<int>(::syscall(SYS_fsync, file));
}
extern "C" int rename(const char* from, const char* to) noexcept {
  struct stat status = {};
  ::stat(from, &status);
  note_call("rename", status);
  return static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

namespace bonsai {
namespace {

namespace fs = std::filesystem;
using test::error_of;

class Safetensors : public testing::Test {
 protected:
  void put(const std::string& bytes) const {
    fs::remove(path);  // ext4 writes a truncated and rewritten file to the disk at once
    std::ofstream(path, std::ios::binary) << bytes;
  }
  std::string get() const {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::vector<std::string> files() const {
    std::vector<std::string> all;
    for (const auto& file : fs::directory_iterator(folder)) all.push_back(file.path().filename());
    return all;
  }

  // Opens the file and reads all of it. Returns the error's text, or "" if there is none.
  std::string trouble() const {
    try {
      const SafetensorsFile file(path);
      for (const auto& name : file.names()) file.read(name).values();
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  }
  std::string trouble_with(const std::string& bytes) const {
    put(bytes);
    return trouble();
  }

  test::Folder temporary;
  fs::path folder = temporary.path(), path = folder / "model.safetensors";
};

std::string bytes_of_length(uint64_t length) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes;
}
std::string file_of(const std::string& header, const std::string& data = "") {
  return bytes_of_length(header.size()) + header + data;
}
template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}
// A header with one tensor, "w".
std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"w":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
}

#define EXPECT_TROUBLE(text, part)                                    \
  do {                                                                \
    const std::string found = (text);                                 \
    EXPECT_NE(found.find(part), std::string::npos) << found;          \
    EXPECT_NE(found.find(path.string()), std::string::npos) << found; \
  } while (false)

std::vector<std::pair<std::string, Tensor>> sample() {
  return {{"ids", tensor({3}, {-2147483648.0, 7, 2147483647}, DType::i32)},
          {"weight", tensor({2, 3}, {1, -2.5, 0.1, 1e30, -0.0, 4}, DType::f32)},
          {"exact", tensor({2}, {0.1, 1e300}, DType::f64)},
          {"scalar", tensor({}, {42}, DType::f32)},
          {"none", tensor({0, 4}, {}, DType::f64)}};
}

TEST_F(Safetensors, WhatIsWrittenComesBackToTheBit) {
  const auto tensors = sample();
  const std::map<std::string, std::string> metadata{{"step", "12"}, {"text", "\"\n\u00e9"}, {"", ""}};
  write_safetensors(path, tensors, metadata);
  const SafetensorsFile file(path);
  EXPECT_EQ(file.metadata(), metadata);
  EXPECT_EQ(file.names(), (std::vector<std::string>{"exact", "ids", "none", "scalar", "weight"}));
  EXPECT_TRUE(file.contains("ids"));
  EXPECT_FALSE(file.contains("id"));
  for (const auto& [name, x] : tensors) {
    const Tensor y = file.read(name);
    EXPECT_EQ(y.dtype(), x.dtype()) << name;
    EXPECT_EQ(file.shape(name), x.shape()) << name;
    EXPECT_EQ(y.shape(), x.shape()) << name;
    EXPECT_EQ(std::memcmp(y.data(), x.data(), x.elements() * size_of(x.dtype())), 0) << name;
  }
  EXPECT_EQ(files(), std::vector<std::string>{"model.safetensors"});
}

TEST_F(Safetensors, AFileWithoutTensorsIsAFile) {
  write_safetensors(path, {});
  EXPECT_EQ(get(), file_of("{}      "));
  EXPECT_EQ(SafetensorsFile(path).names().size(), 0u);
}

// PyTorch's reader refuses tensors that are not aligned within the data.
TEST_F(Safetensors, EveryTensorIsWrittenAligned) {
  write_safetensors(path, {{"a", tensor({1}, {1})}, {"b", tensor({1}, {2}, DType::f64)}});
  const std::string bytes = get();
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  EXPECT_EQ(header % 8, 0u);
  EXPECT_EQ(bytes.substr(8 + header), bytes_of<double>({2}) + bytes_of<float>({1}));
}

TEST_F(Safetensors, ASliceIsWrittenFromItsOwnElements) {
  write_safetensors(path, {{"w", tensor({4}, {1, 2, 3, 4}).alias({2}, 1)}});
  EXPECT_EQ(SafetensorsFile(path).read("w").values(), (std::vector<double>{2, 3}));
}

TEST_F(Safetensors, ReadsConvertBetweenFloatsAndNeverToOrFromIntegers) {
  write_safetensors(path, sample());
  const SafetensorsFile file(path);
  EXPECT_EQ(file.read("exact", DType::f32).values()[0], double{0.1f});
  EXPECT_EQ(file.read("weight", DType::f64).values()[2], double{0.1f});
  EXPECT_TROUBLE(error_of([&] { file.read("ids", DType::f32); }),
                 "tensor \"ids\" is I32 and cannot become f32");
  EXPECT_TROUBLE(error_of([&] { file.read("weight", DType::i32); }),
                 "tensor \"weight\" is F32 and cannot become i32");
}

TEST_F(Safetensors, AnUnknownNameIsNamed) {
  write_safetensors(path, sample());
  EXPECT_TROUBLE(error_of([&] { SafetensorsFile(path).read("wieght"); }), "has no tensor \"wieght\"");
}

// The tensors are longer than the chunks of the conversion and are not aligned in the file.
TEST_F(Safetensors, LongUnalignedTensorsAreConvertedWhole) {
  std::vector<int64_t> ids(10000);
  std::vector<double> values;
  for (size_t i = 0; i < ids.size(); ++i) values.push_back(static_cast<double>(ids[i] = 3 - int64_t(i)));
  const std::string header =
      R"({"a":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]},)"
      R"("w":{"dtype":"I64","shape":[100,100],"data_offsets":[2,80002]}})";
  put(file_of(header + (header.size() % 2 ? "" : " "), "\x80\x3f" + bytes_of(ids)));
  EXPECT_EQ(SafetensorsFile(path).read("w").values(), values);
  EXPECT_EQ(SafetensorsFile(path).read("a").values(), std::vector<double>{1});
}

TEST_F(Safetensors, I64OutsideI32NamesTensorPlaceAndValue) {
  put(file_of(one("I64", "[3]", "[0,24]"), bytes_of<int64_t>({2147483647, -2147483648, 2147483648})));
  EXPECT_TROUBLE(trouble(), "tensor \"w\" has 2147483648 at position 2");
}

TEST_F(Safetensors, EveryHalfIsWidenedExactly) {
  std::vector<uint16_t> halves(65536);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  put(file_of(one("F16", "[65536]", "[0,131072]"), bytes_of(halves)));
  const Tensor x = SafetensorsFile(path).read("w");
  const auto floats = x.span<float>();
  for (uint32_t i = 0; i < 65536; ++i) {
    const int exponent = (i >> 10) & 31, fraction = i & 1023;
    const float size = exponent == 31  ? fraction ? NAN : INFINITY
                       : exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                                       : std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
    ASSERT_EQ(std::signbit(floats[i]), i >= 32768) << i;
    if (std::isnan(size)) {
      ASSERT_TRUE(std::isnan(floats[i])) << i;
    } else {
      ASSERT_EQ(std::abs(floats[i]), size) << i;
    }
  }
  EXPECT_EQ(SafetensorsFile(path).read("w", DType::f64).values()[1], 0x1p-24);
}

TEST_F(Safetensors, BFloatsAreTheUpperHalvesOfFloats) {
  put(file_of(one("BF16", "[5]", "[0,10]"), bytes_of<uint16_t>({0x3f80, 0xc049, 0x0001, 0x7f80, 0x8000})));
  const Tensor x = SafetensorsFile(path).read("w");
  const auto floats = x.span<float>();
  const uint32_t expected[] = {0x3f800000, 0xc0490000, 0x00010000, 0x7f800000, 0x80000000};
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(std::bit_cast<uint32_t>(floats[i]), expected[i]);
}

TEST_F(Safetensors, ABufferNobodyReadsDoesNoHarm) {
  put(file_of(R"({"mask":{"dtype":"BOOL","shape":[4],"data_offsets":[4,8]},)"
              R"("w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
              bytes_of<float>({2.5f}) + "\1\1\1\1"));
  const SafetensorsFile file(path);
  EXPECT_EQ(file.read("w").item(), 2.5);
  EXPECT_EQ(file.dtype("mask"), "BOOL");
  EXPECT_TROUBLE(trouble(), "tensor \"mask\" is BOOL, which Bonsai does not read");
}

TEST_F(Safetensors, WhatIsNoFileIsRefused) {
  EXPECT_TROUBLE(trouble(), "No such file");
  path = folder;
  EXPECT_TROUBLE(trouble(), "a directory");
  path = folder / "pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_TROUBLE(trouble(), "not a regular file");
}

TEST_F(Safetensors, AHeaderLengthIsNotBelieved) {
  rusage before = {}, after = {};
  ::getrusage(RUSAGE_SELF, &before);
  EXPECT_TROUBLE(trouble_with(""), "too few");
  EXPECT_TROUBLE(trouble_with("1234567"), "too few");
  EXPECT_TROUBLE(trouble_with(bytes_of_length(0xFFFFFFFFFFFFFFFB) + "{}"), "claims a header");
  EXPECT_TROUBLE(trouble_with(bytes_of_length(200'000'000) + std::string(92, ' ')), "claims a header");
  EXPECT_TROUBLE(trouble_with(bytes_of_length(3) + "{}"), "claims a header");
  put(bytes_of_length(200'000'000) + "{}");
  fs::resize_file(path, 300'000'000);  // a sparse file
  EXPECT_TROUBLE(trouble(), "the format allows 100000000");
  ::getrusage(RUSAGE_SELF, &after);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 50'000) << "KiB";
}

TEST_F(Safetensors, AHeaderThatIsNoObjectOfTheFormatIsRefused) {
  for (const char* header : {"", " ", "[]", "null", "1", " {}", "{}\n", "\xEF\xBB\xBF{}", "{} x", "}", "x}"})
    EXPECT_TROUBLE(trouble_with(file_of(header)), "not a JSON object");
  EXPECT_TROUBLE(trouble_with(file_of(std::string("{}\0}", 4))), "not a JSON object");
  for (const char* header : {"{", "{}}", "{{}", "{\"a\" 1}", "{\"\xff\":1}", "{/**/}", "{\"w\":1e999}"})
    EXPECT_NE(trouble_with(file_of(header)), "") << header;
  EXPECT_TROUBLE(trouble_with(file_of("{{}")), "not valid JSON");
}

TEST_F(Safetensors, DeepNestingIsRefusedWhereItStarts) {
  EXPECT_TROUBLE(trouble_with(file_of("{\"w\":" + std::string(1'000'000, '[') + "}")),
                 "must be an object, not a list");
  std::string header = one("F32", "[[1]]", "[0,4]");
  EXPECT_TROUBLE(trouble_with(file_of(header, "abcd")), "as its shape, not a list");
}

TEST_F(Safetensors, ANameThatStandsTwiceIsRefused) {
  const std::string entry = R"({"dtype":"F32","shape":[0],"data_offsets":[0,0]})";
  EXPECT_TROUBLE(trouble_with(file_of("{\"w\":" + entry + ",\"w\":" + entry + "}")), "\"w\" stands twice");
  EXPECT_TROUBLE(trouble_with(file_of(R"({"__metadata__":{},"__metadata__":{}})")), "stands twice");
  EXPECT_TROUBLE(trouble_with(file_of(R"({"__metadata__":{"a":"1","a":"1"}})")), "has \"a\" twice");
  EXPECT_TROUBLE(trouble_with(file_of(R"({"w":{"shape":[0],"shape":[0]}})")),
                 "tensor \"w\" has \"shape\" twice");
  EXPECT_TROUBLE(trouble_with(file_of(R"({"w":{"dtype":"F32","dtype":"F32"}})")), "has \"dtype\" twice");
}

TEST_F(Safetensors, AnEntryMustBeWholeAndOfTheRightTypes) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"w":{}})", "tensor \"w\" has no dtype"},
      {R"({"w":{"dtype":"F32","data_offsets":[0,0]}})", "has no shape"},
      {R"({"w":{"dtype":"F32","shape":[0]}})", "has no data_offsets"},
      {R"({"w":{"dtype":"F32","shape":[0],"data_offsets":[0]}})", "only 1 data_offsets"},
      {R"({"w":{"dtype":"F32","shape":[0],"data_offsets":[0,0,0]}})", "more than two data_offsets"},
      {R"({"w":{"strides":[1]}})", "unknown key \"strides\""},
      {R"({"w":null})", "must be an object, not null"},
      {R"({"w":1})", "must be an object, not 1"},
      {R"({"w":"F32"})", "must be an object, not a string"},
      {R"({"w":{"dtype":1}})", "text as its dtype, not 1"},
      {R"({"w":{"dtype":["F32"]}})", "text as its dtype, not a list"},
      {R"({"w":{"shape":3}})", "as its shape, not 3"},
      {R"({"w":{"shape":{}}})", "as its shape, not an object"},
      {R"({"w":{"shape":[-1]}})", "as its shape, not -1"},
      {R"({"w":{"shape":[2.5]}})", "as its shape, not 2.5"},
      {R"({"w":{"shape":["2"]}})", "as its shape, not a string"},
      {R"({"w":{"shape":[true]}})", "as its shape, not a boolean"},
      {R"({"w":{"shape":[99999999999999999999]}})", "as its shape, not 99999999999999999999"},
      {R"({"w":{"shape":[1,1,1,1,1,1,1]}})", "more than 6 axes"},
      {R"({"w":{"data_offsets":[-1,0]}})", "as its data_offsets, not -1"},
      {R"({"__metadata__":"x"})", "__metadata__ must be an object"},
      {R"({"__metadata__":{"step":1}})", "__metadata__ must hold text under \"step\", not 1"},
      {R"({"__metadata__":{"a":{}}})", "must hold text under \"a\", not an object"}};
  for (const auto& [header, part] : cases) EXPECT_TROUBLE(trouble_with(file_of(header)), part);
}

TEST_F(Safetensors, SizesAreCheckedAgainstTheData) {
  const auto with = [&](const std::string& header, size_t bytes) {
    return trouble_with(file_of(header, std::string(bytes, '\0')));
  };
  EXPECT_EQ(with(one("F32", "[1]", "[0,4]"), 4), "");
  EXPECT_EQ(with(one("F32", "[4,0]", "[0,0]"), 0), "");
  EXPECT_TROUBLE(with(one("F32", "[1000,1000]", "[0,4]"), 4),
                 "F32(1000,1000), which does not fill its 4 bytes");
  EXPECT_TROUBLE(with(one("F32", "[1]", "[0,5]"), 5), "does not fill");
  EXPECT_TROUBLE(with(one("U8", "[3]", "[0,4]"), 4), "does not fill");
  EXPECT_TROUBLE(with(one("F4", "[3]", "[0,1]"), 1), "does not fill");
  EXPECT_TROUBLE(with(one("F32", "[4294967296,4294967296]", "[0,0]"), 0),
                 "more elements than can be counted");
  EXPECT_TROUBLE(with(one("F32", "[4611686018427387904]", "[0,0]"), 0), "more elements than can be counted");
  EXPECT_TROUBLE(with(one("F32", "[18446744073709551615]", "[0,0]"), 0), "more elements than can be counted");
  EXPECT_TROUBLE(with(one("F32", "[0,4294967296,4294967296]", "[0,0]"), 0),
                 "more elements than can be counted");
  EXPECT_TROUBLE(with(one("F32", "[1]", "[4,0]"), 4), "run backwards");
  EXPECT_TROUBLE(with(one("F32", "[1]", "[4,8]"), 4), "holds only 4");
  EXPECT_TROUBLE(with(one("F32", "[1]", "[18446744073709551612,0]"), 4), "run backwards");
  EXPECT_TROUBLE(with(one("F32", "[0]", "[18446744073709551615,18446744073709551615]"), 4), "holds only 4");
  EXPECT_TROUBLE(with(one("Q4", "[1]", "[0,4]"), 4), "unknown dtype \"Q4\"");
}

TEST_F(Safetensors, OverlapsAndHolesAreRefused) {
  const auto two = [&](const std::string& a, const std::string& b, size_t bytes) {
    const std::string start = R"({"dtype":"F32","shape":[1],"data_offsets":)";
    const std::string header = "{\"a\":" + start + a + "},\"b\":" + start + b + "}}";
    return trouble_with(file_of(header, std::string(bytes, '\0')));
  };
  EXPECT_EQ(two("[4,8]", "[0,4]", 8), "");
  EXPECT_TROUBLE(two("[0,4]", "[0,4]", 4), "tensor \"b\" overlaps another one");
  EXPECT_TROUBLE(two("[0,4]", "[2,6]", 6), "tensor \"b\" overlaps another one");
  EXPECT_TROUBLE(two("[0,4]", "[6,10]", 10), "no tensor holds the 2 bytes of data before tensor \"b\"");
  EXPECT_TROUBLE(two("[1,5]", "[5,9]", 9), "no tensor holds the 1 bytes of data before tensor \"a\"");
  EXPECT_TROUBLE(two("[0,4]", "[4,8]", 9), "no tensor holds the last 1 bytes");
}

TEST_F(Safetensors, AFileCutAnywhereIsRefused) {
  write_safetensors(path, sample(), {{"step", "12"}});
  const std::string good = get();
  for (size_t i = 0; i < 20; ++i) EXPECT_NE(trouble_with(good.substr(0, good.size() * i / 20)), "") << i;
  EXPECT_NE(trouble_with(good.substr(0, good.size() - 1)), "");
  EXPECT_EQ(trouble_with(good), "");
}

TEST_F(Safetensors, AFileCutAfterOpeningIsAnErrorNotASignal) {
  write_safetensors(path, sample());
  const SafetensorsFile file(path);
  fs::resize_file(path, 100);
  EXPECT_TROUBLE(error_of([&] { file.read("weight"); }), "bytes when it was opened");
}

// Any exception other than Error, or a signal, fails the test. A flipped byte of a name cannot be detected.
TEST_F(Safetensors, AFlippedByteOfTheHeaderIsAnErrorOrAnotherValidFile) {
  write_safetensors(path, sample(), {{"step", "12"}});
  const std::string good = get();
  uint64_t header = 0;
  std::memcpy(&header, good.data(), 8);
  size_t refused = 0, flips = 0;
  for (size_t i = 0; i < 8 + header; ++i) {
    for (const int flip : {0x01, 0x04, 0x20, 0x80, 0xFF}) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ flip);
      const std::string text = trouble_with(bad);
      refused += !text.empty();
      ++flips;
      EXPECT_TRUE(i >= 8 || !text.empty()) << i;
    }
  }
  EXPECT_GT(refused * 10, flips * 7);
}

TEST_F(Safetensors, ControlCharactersOfANameDoNotReachTheTerminal) {
  const std::string text = trouble_with(file_of("{\"\\u001b[2J\":null}"));
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_LT(trouble_with(file_of("{\"" + std::string(1'000'000, 'x') + "\":null}")).size(), 1000u);
}

TEST_F(Safetensors, ABadRequestToWriteLeavesTheOldFile) {
  put("old");
  const Tensor x = tensor({1}, {1});
  const auto refused = [&](const std::vector<std::pair<std::string, Tensor>>& tensors, const char* why,
                           const std::map<std::string, std::string>& metadata = {}) {
    EXPECT_TROUBLE(error_of([&] { write_safetensors(path, tensors, metadata); }), why);
  };
  refused({{"w", x}, {"w", x}}, "its name is given twice");
  refused({{"w", Tensor()}}, "it is undefined");
  refused({{"__metadata__", x}}, "its name is taken");
  refused({{"\xff", x}}, "not valid UTF-8");
  refused({{"w", x}}, "not valid UTF-8", {{"a", "\xff"}});
  EXPECT_EQ(get(), "old");
  EXPECT_EQ(files().size(), 1u);
}

// While an object of this class exists, no file may exceed `bytes`, which acts like a full disk.
struct FileLimit {
  explicit FileLimit(rlim_t bytes) : handler(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &limit);
    const rlimit small{bytes, limit.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &small);
  }
  ~FileLimit() {
    ::setrlimit(RLIMIT_FSIZE, &limit);
    std::signal(SIGXFSZ, handler);
  }
  rlimit limit = {};
  void (*handler)(int);
};

TEST_F(Safetensors, ASaveThatDoesNotFitLeavesTheOldFileAndNothingElse) {
  write_safetensors(path, sample());
  const std::string old = get();
  for (const rlim_t bytes : {0, 4, 100, 4096}) {
    EXPECT_TROUBLE(error_of([&] {
                     const FileLimit limit(bytes);
                     write_safetensors(path, {{"w", tensor({10000}, std::vector<double>(10000))}});
                   }),
                   "cannot be written: File too large");
    EXPECT_EQ(get(), old) << bytes;
    EXPECT_EQ(files(), std::vector<std::string>{"model.safetensors"}) << bytes;
  }
}

// After a power failure the name refers to the old file or to the complete new one: the bytes are
// synchronized before the rename and the folder after it.
TEST_F(Safetensors, BytesReachTheDiskBeforeTheyTakeTheName) {
  for (const auto& tensors : {sample(), {}}) {
    file_calls.clear();
    write_safetensors(path, tensors, {{"step", "12"}});
    struct stat file = {}, in = {};
    ASSERT_TRUE(::stat(path.c_str(), &file) == 0 && ::stat(folder.c_str(), &in) == 0);
    ASSERT_EQ(file_calls.size(), 3u);
    EXPECT_EQ(file_calls[0].name, "fsync");
    EXPECT_EQ(file_calls[0].file, file.st_ino);
    EXPECT_EQ(file_calls[0].bytes, file.st_size) << "all was written by then";
    EXPECT_EQ(file_calls[1].name, "rename");
    EXPECT_EQ(file_calls[1].file, file.st_ino);
    EXPECT_EQ(file_calls[2].name, "fsync of a folder");
    EXPECT_EQ(file_calls[2].file, in.st_ino);
  }
}

TEST_F(Safetensors, AFolderThatIsMissingIsNamed) {
  path = folder / "missing" / "model.safetensors";
  EXPECT_TROUBLE(error_of([&] { write_safetensors(path, sample()); }), "No such file or directory");
}

// As root, a rename could replace /dev/null by a regular file. The test uses a FIFO instead of a device, so
// that a failure does no harm.
TEST_F(Safetensors, WhatIsNoPlainFileIsNotReplaced) {
  path = folder / "pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_TROUBLE(error_of([&] { write_safetensors(path, sample()); }),
                 "cannot be replaced: it is not a regular file");
  EXPECT_TRUE(fs::is_fifo(path));
  path = folder;
  EXPECT_TROUBLE(error_of([&] { write_safetensors(path, sample()); }),
                 "cannot be replaced: it is a directory");
  EXPECT_EQ(files(), std::vector<std::string>{"pipe"});
}

TEST_F(Safetensors, ALinkIsWrittenThrough) {
  write_safetensors(path, {});
  fs::create_symlink("model.safetensors", folder / "latest");
  write_safetensors(folder / "latest", sample());
  EXPECT_TRUE(fs::is_symlink(folder / "latest"));
  EXPECT_EQ(SafetensorsFile(path).names().size(), sample().size());
}

// A temporary file of a killed process with the same process id, which is common in containers, is
// overwritten.
TEST_F(Safetensors, ALeftoverOfAKilledSaveIsOverwritten) {
  std::ofstream(path.string() + ".tmp-" + std::to_string(::getpid())) << std::string(10000, 'x');
  write_safetensors(path, sample());
  EXPECT_EQ(trouble(), "");
  EXPECT_EQ(files(), std::vector<std::string>{"model.safetensors"});
}

TEST_F(Safetensors, AReaderKeepsTheFileItOpened) {
  write_safetensors(path, {{"w", tensor({1}, {1})}});
  const SafetensorsFile file(path);
  write_safetensors(path, {{"w", tensor({1}, {2})}});
  EXPECT_EQ(file.read("w").item(), 1);
}

}  // namespace
}  // namespace bonsai
