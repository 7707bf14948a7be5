// Without a device there is nothing to test, which is no failure: the last line says which of the two it was.
#include <cstdio>

#include "framework/backend/backend.h"
#include "tests/ran_tests.h"

constexpr int kSkipped = 77;  // known to ctest

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const bonsai::CudaInfo cuda = bonsai::cuda_info();
  if (!cuda.usable) {
    std::printf("not run: %s\n", cuda.text.c_str());
    return kSkipped;
  }
  std::printf("device: %s\n", cuda.text.c_str());
  return ran_tests();
}
