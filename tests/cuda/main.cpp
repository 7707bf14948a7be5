// If there is no device, the program prints "not run", which is not a failure. BONSAI_TEST_DEVICE is the
// index of the device; the default is 0.
#include <cstdio>
#include <cstdlib>

#include "bonsai/framework/backend/backend.h"
#include "bonsai/framework/backend/load_cuda.h"
#include "bonsai/tests/ran_tests.h"

constexpr int kSkipped = 77;  // ctest counts this exit status as skipped

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const char* const index = std::getenv("BONSAI_TEST_DEVICE");
  bonsai::cuda::load(index ? std::atoi(index) : 0);  // a process uses one device only
  const bonsai::CudaInfo cuda = bonsai::cuda_info();
  if (!cuda.usable) {
    std::printf("not run: %s\n", cuda.text.c_str());
    return kSkipped;
  }
  std::printf("device: %s\n", cuda.text.c_str());
  return ran_tests();
}
