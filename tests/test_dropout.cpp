// Dropout: its rate and scale, its random numbers, and their replay by a copy of the context.
#include "bonsai/layers/dropout.h"
#include "bonsai/framework/ops/ops.h"
#include "bonsai/tests/support.h"

namespace bonsai::test {
namespace {

// B34: dropout and its scale, in the layer and inside attention.
TEST(Dropout, KeepsItsPromises) {
  Module root;
  Dropout half{&root, "half", {.p = 0.5}}, all{&root, "all", {.p = 1}}, tenth{&root, "tenth", {.p = 0.1}},
      none{&root, "none", {}};
  const Tensor x = random_tensor({100}, DType::f32);
  Context evaluation, training{.training = true, .random = {.seed = 1}};
  EXPECT_TRUE(same_bits(half(x, evaluation), x));  // no effect in evaluation
  EXPECT_TRUE(same_bits(half(x, evaluation), x));
  EXPECT_EQ(evaluation.random.call, 0);

  const Result dropped = differentiate([&](const auto& in) { return all(in[0], training); }, {x});
  for (double v : dropped.y.values()) EXPECT_EQ(v, 0);
  for (double v : dropped.gradients[0].values()) EXPECT_EQ(v, 0);

  const int64_t n = 1000000;
  const Result r =
      differentiate([&](const auto& in) { return tenth(in[0], training); }, {full({n}, 1)}, full({n}, 1));
  double total = 0;
  for (float v : r.y.span<float>()) {
    ASSERT_TRUE(v == 0 || v == 1.1111112f) << v;
    total += v;
  }
  EXPECT_NEAR(total / n, 1, 0.002);
  EXPECT_TRUE(same_bits(r.y, r.gradients[0]));

  // The gradient of a kept zero is not 0.
  const Result zero =
      differentiate([&](const auto& in) { return half(in[0], training); }, {zeros({1000})}, full({1000}, 1));
  int kept = 0;
  for (double g : zero.gradients[0].values()) {
    ASSERT_TRUE(g == 0 || g == 2);
    kept += g == 2;
  }
  EXPECT_NEAR(kept, 500, 80);

  const uint16_t before = training.random.call;  // p = 0 draws no random numbers
  EXPECT_TRUE(same_bits(none(x, training), x));
  EXPECT_EQ(training.random.call, before);
}

TEST(Dropout, EveryCallAndStepDropsOtherElementsAndACopyReplays) {
  Module root;
  Dropout half{&root, "half", {.p = 0.5}};
  const Tensor x = full({64}, 1);
  Context c{.training = true, .random = {.seed = 1}};
  Context replay = c, later = c;
  later.random.step = 1;
  const Tensor first = half(x, c), second = half(x, c);
  EXPECT_FALSE(same_bits(first, second));
  EXPECT_TRUE(same_bits(first, half(x, replay)));
  EXPECT_TRUE(same_bits(second, half(x, replay)));
  EXPECT_FALSE(same_bits(first, half(x, later)));
}

}  // namespace
}  // namespace bonsai::test
