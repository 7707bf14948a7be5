// For tests with their own main(): runs GoogleTest's tests, then prints how many ran.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>

inline int ran_tests() {
  const int status = RUN_ALL_TESTS();
  std::printf("ran %d tests\n", testing::UnitTest::GetInstance()->test_to_run_count());
  return status;
}
