// The last line says how many tests ran.
#include <gtest/gtest.h>

#include <cstdio>

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const int status = RUN_ALL_TESTS();
  std::printf("ran %d tests\n", testing::UnitTest::GetInstance()->test_to_run_count());
  return status;
}
