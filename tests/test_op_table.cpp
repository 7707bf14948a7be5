// Loops over the op table: each row's gradient, its composed form, its dtypes, and the tensors it saves.
#include "bonsai/framework/checks/gradcheck.h"
#include "bonsai/framework/checks/op_cases.h"
#include "bonsai/framework/ops/ops.h"
#include "bonsai/tests/support.h"

namespace bonsai::test {
namespace {

TEST(OpTable, EveryGradientAgreesWithDifferences) {
  int64_t elements = 0;
  for (const OpCase& row : op_cases()) {
    const GradcheckReport report = gradcheck(row.name(), row.call, make_inputs(row, DType::f64));
    EXPECT_TRUE(report.passed()) << report.text();
    elements += report.elements_checked();
  }
  printf("checked %zu rows, %lld elements\n", op_cases().size(), static_cast<long long>(elements));
}

TEST(OpTable, EveryFusedOpEqualsItsComposedForm) {
  for (const OpCase& row : op_cases()) {
    if (!row.composed) continue;
    for (const DType dtype : {DType::f64, DType::f32}) {
      const double tolerance = dtype == DType::f64 ? 1e-12 : 1e-5;
      const auto inputs = make_inputs(row, dtype, 2);
      const Result fused = differentiate(row.call, inputs), composed = differentiate(row.composed, inputs);
      EXPECT_LE(relative_error(fused.y, composed.y), tolerance) << row.name();
      for (size_t i = 0; i < fused.gradients.size(); ++i)
        EXPECT_LE(relative_error(fused.gradients[i], composed.gradients[i]), tolerance) << row.name()
            << " input " << i;
    }
  }
}

// The f64 kernels are built once, the f32 ones once a level: what is proven of the first holds for the
// others.
TEST(OpTable, EveryResultAndGradientInF32IsThatOfF64) {
  for (const OpCase& row : op_cases()) {
    const Result single = differentiate(row.call, make_inputs(row, DType::f32));
    const Result twice = differentiate(row.call, make_inputs(row, DType::f64));
    EXPECT_LE(relative_error(single.y, twice.y), 1e-5) << row.name();
    for (size_t i = 0; i < twice.gradients.size(); ++i)
      EXPECT_LE(relative_error(single.gradients[i], twice.gradients[i]), 1e-5) << row.name() << " input "
          << i;
  }
}

TEST(OpTable, ResultsAndGradientsHaveTheInputsType) {
  for (const OpCase& row : op_cases())
    for (const DType dtype : {DType::f32, DType::f64}) {
      const Result r = differentiate(row.call, make_inputs(row, dtype));
      EXPECT_EQ(r.y.dtype(), dtype) << row.name();
      for (const Tensor& g : r.gradients) EXPECT_EQ(g.dtype(), dtype) << row.name();
    }
}

// B10: an input or the result changed in place between forward and backward is an error that names
// the op, or makes no difference; never another gradient.
TEST(OpTable, ChangeOfASavedTensorIsNoticed) {
  int noticed = 0;
  for (const OpCase& row : op_cases()) {
    std::vector<Tensor> inputs = make_inputs(row, DType::f64);
    const Result right = differentiate(row.call, inputs);
    for (size_t victim = 0; victim <= inputs.size(); ++victim) {
      if (victim < inputs.size() && !differentiable(inputs[victim])) continue;
      Tape tape;
      const std::vector<Tensor> watched = watch_all(tape, make_inputs(row, DType::f64));
      const Tensor y = row.call(watched);
      Tensor changed = victim < inputs.size() ? watched[victim].detach() : y.detach();
      for (double& v : changed.mutable_span<double>()) v *= 2;
      const std::string error = error_of([&] { tape.backward(y, random_tensor(y.shape(), y.dtype(), 99)); });
      if (error != "no error") {
        EXPECT_NE(error.find("changed in place"), std::string::npos) << row.name() << ": " << error;
        ++noticed;
        continue;
      }
      const auto gradients = gradients_of(tape, watched);
      for (size_t i = 0; i < gradients.size(); ++i)
        EXPECT_TRUE(same_bits(gradients[i], right.gradients[i])) << row.name() << ", changed tensor "
            << victim;
    }
  }
  EXPECT_GT(noticed, 20);
}

// Adding to a running gradient and being the first to write it are two paths of the sinks.
TEST(OpTable, GradientsOfTwoUsesAddUp) {
  for (const OpCase& row : op_cases()) {
    const auto inputs = make_inputs(row, DType::f64);
    const Tensor dy = random_tensor(row.call(inputs).shape(), DType::f64, 99);
    const Result once = differentiate(row.call, inputs, dy);
    const Result twice =
        differentiate([&](const std::vector<Tensor>& in) { return add(row.call(in), row.call(in)); }, inputs,
                      dy);
    for (size_t i = 0; i < twice.gradients.size(); ++i)
      EXPECT_LE(relative_error(twice.gradients[i], scale(once.gradients[i], 2)), 1e-14) << row.name()
          << " input " << i;
  }
}

// Jacobians ask a kept tape many times: nothing may be used up by the first pass.
TEST(OpTable, AKeptTapeGivesTheSameGradientAgain) {
  for (const OpCase& row : op_cases()) {
    const auto inputs = make_inputs(row, DType::f64);
    const Result once = differentiate(row.call, inputs);
    Tape tape;
    const std::vector<Tensor> watched = watch_all(tape, inputs);
    const Tensor y = row.call(watched);
    const Tensor dy = random_tensor(y.shape(), DType::f64, 99);
    for (int pass = 0; pass < 3; ++pass) {
      tape.backward(y, dy, /*keep=*/true);
      const auto gradients = gradients_of(tape, watched);
      for (size_t i = 0; i < gradients.size(); ++i)
        EXPECT_TRUE(same_bits(gradients[i], once.gradients[i])) << row.name() << " pass " << pass;
    }
  }
}

}  // namespace
}  // namespace bonsai::test
