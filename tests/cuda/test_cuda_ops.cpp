// Every row of the op table on the CUDA device: against the CPU, and its gradients against differences.
#include "framework/checks/gradcheck.h"
#include "framework/checks/op_cases.h"
#include "tests/cuda/device.h"

namespace bonsai::test {
namespace {

TEST(CudaOps, EveryKernelIsThere) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    KernelTable cpu = kernels(Device{}, dtype), cuda = kernels(kCuda, dtype);
    std::vector<std::string> names, missing;
    cpu.for_each([&](const char* name, auto& kernel) {
      if (kernel.run) names.push_back(name);
    });
    cuda.for_each([&](const char* name, auto& kernel) {
      if (!kernel.run && std::find(names.begin(), names.end(), name) != names.end()) missing.push_back(name);
      EXPECT_EQ(kernel.device, kCuda);
    });
    EXPECT_TRUE(missing.empty()) << missing.size() << ", the first is " << missing.front();
  }
}

TEST(CudaOps, EveryResultAndGradientIsThatOfTheCpu) {
  for (const OpCase& row : op_cases())
    for (const auto& [dtype, tolerance] : kTypes)
      expect_same_on_cuda(row.name() + " " + name_of(dtype), row.call, make_inputs(row, dtype), tolerance);
}

TEST(CudaOps, EveryGradientAgreesWithDifferences) {
  for (const OpCase& row : op_cases()) {
    const GradcheckReport report = gradcheck(row.name(), on_cuda(row.call), make_inputs(row, DType::f64));
    EXPECT_TRUE(report.passed()) << report.text();
  }
}

// The same bits each time: no order is left to chance.
TEST(CudaOps, ASecondRunHasTheSameBits) {
  for (const OpCase& row : op_cases()) {
    const auto inputs = make_inputs(row, DType::f32);
    const Result once = differentiate(on_cuda(row.call), inputs), again = differentiate(on_cuda(row.call), inputs);
    EXPECT_TRUE(same_bits(once.y, again.y)) << row.name();
    for (size_t i = 0; i < once.gradients.size(); ++i)
      EXPECT_TRUE(same_bits(once.gradients[i], again.gradients[i])) << row.name() << " gradient " << i;
  }
}

}  // namespace
}  // namespace bonsai::test
