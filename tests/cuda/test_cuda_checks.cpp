// The gradient check and the audit of a whole model run on the CUDA device and find faults planted there.
#include "bonsai/framework/checks/audit.h"
#include "bonsai/layers/check_model.h"
#include "bonsai/layers/model/transformer.h"
#include "bonsai/tests/cuda/device.h"
#include "bonsai/trainers/audit.h"

namespace bonsai::test {
namespace {

const TransformerConfig kSmall{.vocab_size = 7, .block_size = 4, .n_layers = 1, .n_heads = 2, .d_model = 8};

ModelCheck gradients_of(Model& model) {
  const Tensor ids = from<int32_t>({1, 4}, std::vector<int32_t>{3, 1, 6, 1}, kCuda);
  return check_model("model", model, ids, {.training = true, .random = {.seed = 1}});
}

TEST(CudaChecks, EveryGradientOfAModelAgreesWithDifferences) {
  Module root({.dtype = DType::f64, .device = kCuda});
  Transformer model(&root, "", kSmall);
  const ModelCheck sound = gradients_of(model);
  EXPECT_TRUE(sound.passed()) << sound.text();
  EXPECT_GT(sound.reports.size(), 10u);

  static const auto backward = kernels(kCuda, DType::f64).gelu_tanh_backward.run;
  const ScopedKernels plant(kCuda, DType::f64, [](KernelTable& kernels) {
    kernels.gelu_tanh_backward.run = [](View x, View dy, MutView dx) { backward(dy, x, dx); };
  });
  const ModelCheck faulty = gradients_of(model);
  EXPECT_FALSE(faulty.passed()) << faulty.text();
}

TEST(CudaChecks, TheAuditSeesAMaskThatTheDeviceLeavesOut) {
  const auto sound = audit_model("model", kSmall, DType::f32, AuditExtent::quick, kCuda);
  EXPECT_TRUE(passed(sound)) << text(sound);

  static const auto forward = kernels(kCuda, DType::f32).attention.run;
  static const auto backward = kernels(kCuda, DType::f32).attention_backward.run;
  const ScopedKernels plant(kCuda, DType::f32, [](KernelTable& kernels) {
    kernels.attention.run = [](const kernel::Attention& a) {
      kernel::Attention open = a;
      open.causal = false;
      forward(open);
    };
    kernels.attention_backward.run = [](const kernel::Attention& a, const kernel::AttentionGradients& d) {
      kernel::Attention open = a;
      open.causal = false;
      backward(open, d);
    };
  });
  const auto leaking = audit_model("model", kSmall, DType::f32, AuditExtent::quick, kCuda);
  EXPECT_NE(text(leaking).find("which comes later"), std::string::npos) << text(leaking);
}

TEST(CudaChecks, AProcessUsesOneDevice) {
  EXPECT_EQ(error_of([] { open_device({Device::cuda, 1}); }),
            "[device] cuda:1 cannot be used: cuda:0 is, and a process uses one CUDA device");
}

}  // namespace
}  // namespace bonsai::test
