// A thread uses the device that another thread opened.
#include <cstdlib>
#include <thread>

#include "bonsai/framework/ops/ops.h"
#include "bonsai/tests/cuda/device.h"

namespace bonsai::test {
namespace {

TEST(CudaThreads, ASecondThreadHasTheSameResults) {
  const char* const index = std::getenv("BONSAI_TEST_DEVICE");
  const Device device{Device::cuda, static_cast<int8_t>(index ? std::atoi(index) : 0)};
  const Tensor x = random_tensor({1, 2, 33, 128}, DType::f32).to(device),
      w = random_tensor({128, 128}, DType::f32, 2).to(device);
  const Tensor one = random_tensor({128}, DType::f32, 3).to(device);
  const auto run = [&] {
    const Tensor h = linear(rms_norm(x, one, 1e-5), w, one);
    return matmul(scaled_dot_product_attention(h, h, h, {}), w).to(Device{});
  };
  // Leaves memory in the pool, so that the thread's first CUDA call is a kernel launch.
  const Tensor here = run();
  Tensor there;
  std::string error;
  std::thread([&] { error = error_of([&] { there = run(); }); }).join();
  EXPECT_EQ(error, "no error");
  EXPECT_TRUE(there && same_bits(there, here));
}

}  // namespace
}  // namespace bonsai::test
