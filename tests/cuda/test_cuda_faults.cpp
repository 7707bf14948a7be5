// A kernel reads unmapped memory. The error names the kernel if launches are synchronous, and otherwise says
// how to find its name. The device is broken afterwards, so this program tests nothing else.
#include <cstdlib>

#include "bonsai/framework/ops/ops.h"
#include "bonsai/tests/cuda/device.h"

namespace bonsai::test {
namespace {

TEST(CudaFaults, TheKernelAtFaultIsNamed) {
  const Tensor x = random_tensor({4}, DType::f32).to(kCuda);
  Tensor y = exp(x);
  View far = view(x);
  MutView result = mut(y);
  far.shape = result.shape = {int64_t{1} << 30};
  const std::string launch = error_of([&] { kernels(kCuda, DType::f32).tanh(far, result); });
  if (std::getenv("BONSAI_CUDA_SYNC")) {
    EXPECT_TRUE(launch.starts_with("[cuda] kernel ")) << launch;
    EXPECT_LT(launch.find("unary"), launch.find(" failed: ")) << launch;
  } else {
    EXPECT_EQ(launch, "no error");
    const std::string later = error_of([&] { y.values(); });
    EXPECT_TRUE(later.starts_with("[cuda] cuda")) << later;
    EXPECT_TRUE(later.ends_with("; run again with BONSAI_CUDA_SYNC=1, which names the kernel at fault"))
        << later;
  }
}

}  // namespace
}  // namespace bonsai::test
