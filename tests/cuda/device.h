// Helpers of the tests of the CUDA device. They run on the device of the library that BONSAI_CUDA_LIBRARY
// names: a GPU, or the emulated device of tests/cuda_emulation.
#pragma once

#include "bonsai/framework/autograd/record.h"
#include "bonsai/framework/backend/backend.h"
#include "bonsai/tests/support.h"

namespace bonsai::test {

constexpr Device kCuda{Device::cuda};

// Copies x to a device as an op. The gradient is copied back to the device of x.
inline Tensor moved(const Tensor& x, Device to) {
  if (!differentiable(x)) return x.to(to);
  struct From {
    Device device;
  };
  return record("moved", {x}, x.to(to), {}, From{x.device()},
                [](Tensor dy, Saved&, Sink&, From from) -> Grads { return {dy.to(from.device)}; });
}

using Call = std::function<Tensor(const std::vector<Tensor>&)>;

// Runs the call on the CUDA device; inputs and result are on the host.
inline Call on_cuda(const Call& call) {
  return [call](const std::vector<Tensor>& inputs) {
    std::vector<Tensor> there;
    for (const Tensor& x : inputs) there.push_back(moved(x, kCuda));
    return moved(call(there), Device{});
  };
}

// Expects results and gradients on both devices to agree within the tolerance.
inline void expect_same_on_cuda(const std::string& name, const Call& call, const std::vector<Tensor>& inputs,
                                double tolerance) {
  const Result here = differentiate(call, inputs), there = differentiate(on_cuda(call), inputs);
  EXPECT_LE(relative_error(there.y, here.y), tolerance) << name;
  ASSERT_EQ(there.gradients.size(), here.gradients.size()) << name;
  for (size_t i = 0; i < here.gradients.size(); ++i)
    EXPECT_LE(relative_error(there.gradients[i], here.gradients[i]), tolerance) << name << " gradient " << i;
}

}  // namespace bonsai::test
