// The failure of a randomised test must be reproducible: its seed is printed and can be set.
#include "bonsai/tests/random_seed.h"
#include "bonsai/tests/support.h"

namespace bonsai::test {
namespace {

struct Seeded {
  explicit Seeded(const char* text) { ::setenv("BONSAI_TEST_SEED", text, 1); }
  ~Seeded() { ::unsetenv("BONSAI_TEST_SEED"); }
};

TEST(RandomSeed, IsPrintedAndCanBeGiven) {
  ::unsetenv("BONSAI_TEST_SEED");
  testing::internal::CaptureStderr();
  const uint64_t seed = random_seed();
  const std::string printed = testing::internal::GetCapturedStderr();
  EXPECT_NE(printed.find("BONSAI_TEST_SEED=" + std::to_string(seed)), std::string::npos) << printed;

  const Seeded again(std::to_string(seed).c_str());
  EXPECT_EQ(random_seed(), seed);
}

TEST(RandomSeed, ThatIsNoWholeNumberIsRefused) {
  for (const char* text : {"", "x", "7x", "-1", "18446744073709551616"}) {
    const Seeded scope(text);
    EXPECT_THROW(random_seed(), std::runtime_error) << "'" << text << "'";
  }
}

}  // namespace
}  // namespace bonsai::test
