// Every row of the op table passes every check, and every check detects its planted fault.
#include <map>

#include "bonsai/framework/autograd/record.h"
#include "bonsai/framework/checks/check_op.h"
#include "bonsai/framework/ops/ops.h"
#include "bonsai/tests/support.h"

namespace bonsai::test {
namespace {

using In = const std::vector<Tensor>&;

TEST(OpTable, EveryRowPassesEveryCheck) {
  for (const OpCase& row : op_cases()) {
    const OpReport report = check_op(row);
    EXPECT_TRUE(report.passed()) << report.text();
  }
  printf("checked %zu rows\n", op_cases().size());
}

// The op y = x with the given backward function.
template <class Args, class F>
Tensor planted(const Tensor& x, const Tensor& saved, const Args& args, F f) {
  return record("planted", {x}, x.copy(), {saved}, args, f);
}

// The identity, whose backward function multiplies dy by a factor; 1 is right.
Tensor passed_back_times(const Tensor& x, double factor) {
  return planted(x, {}, factor, [](Tensor dy, Saved&, Sink&, double f) -> Grads { return {scale(dy, f)}; });
}

Tensor backward_by_pointer(In in) {  // no saved tensor detects a change of x
  return planted(in[0], {}, in[0].data(), [](Tensor dy, Saved&, Sink&, const void* x) -> Grads {
    const Shape shape = dy.shape();
    const std::span elements(static_cast<const double*>(x), static_cast<size_t>(shape.elements()));
    return {dy.dtype() == DType::f64 ? mul(dy, from<double>(shape, elements)) : dy};
  });
}

Tensor sum_overwritten(In in) {  // overwrites the gradient that is to be accumulated
  return planted(in[0], {}, NoArgs{}, [](Tensor dy, Saved&, Sink& sink, NoArgs) -> Grads {
    auto dx = sink.into(0);
    copy_into(dy, dx.grad);
    return {};
  });
}

Tensor used_up(In in) {  // each backward pass changes a value that the next one reads
  return planted(in[0], {}, NoArgs{}, [](Tensor dy, Saved&, Sink&, NoArgs) -> Grads {
    static double factor = 1;
    return {scale(dy, factor /= 2)};
  });
}

Tensor in_f64(In in) {
  return record("planted", {in[0]}, in[0].to(DType::f64), {}, NoArgs{},
                [](Tensor dy, Saved&, Sink&, NoArgs) -> Grads { return {dy}; });
}

TEST(OpTable, EveryCheckFindsItsFault) {
  const std::vector<Input> inputs = {{Input::normal, Shape{3, 4}}};
  const auto row = [&](OpCase::Call call, OpCase::Call composed = {}) {
    return OpCase{
        .op = "planted", .inputs = inputs, .call = std::move(call), .composed = std::move(composed)};
  };
  const auto same = [](In in) { return in[0]; };
  const auto off = [](In in) { return passed_back_times(in[0], 1.001); };
  const std::map<std::string, OpCase> faults = {
      {"gradient", row(off)},
      {"slope", row(off)},
      {"composed form", row(same, [](In in) { return scale(in[0], 1.001); })},
      {"f32", row([](In in) { return scale(in[0], in[0].dtype() == DType::f32 ? 1.001 : 1); })},
      {"dtype", row(in_f64)},
      {"saved tensors", row(backward_by_pointer)},
      {"two uses", row(sum_overwritten)},
      {"kept tape", row(used_up)},
      {"finite", row([](In in) { return tanh(exp(scale(in[0], 1e3))); })},
      {"mutants", row([](In in) { return scale(in[0], 1e-12); })}};
  ASSERT_EQ(faults.size(), op_checks().size());
  for (const OpCheck& check : op_checks()) {
    ASSERT_TRUE(faults.contains(check.name)) << check.name;
    std::string fault = check.fault(row([](In in) { return tanh(in[0]); }));
    EXPECT_EQ(fault, "") << check.name;
    const std::string error = error_of([&] { fault = check.fault(faults.at(check.name)); });
    EXPECT_TRUE(!fault.empty() || error != "no error") << check.name;
    printf("%s: %s\n", check.name, fault.empty() ? error.c_str() : fault.c_str());
  }
}

TEST(OpTable, ARowOfOnesOwnIsAddedOnceAndComplete) {
  const size_t rows = op_cases().size();
  OpCase own{
      .op = "own", .inputs = {{Input::normal, Shape{3, 4}}}, .call = [](In in) { return tanh(in[0]); }};
  OpCase empty = own;
  empty.call = {};
  EXPECT_EQ(error_of([&] { add_op_case(empty); }), "[op case] own needs inputs and a call");
  add_op_case(own);
  EXPECT_EQ(error_of([&] { add_op_case(own); }),
            "[op case] there are two rows own; give one of them a variant");
  own.variant = "again";
  add_op_case(own);
  ASSERT_EQ(op_cases().size(), rows + 2);
  EXPECT_EQ(op_cases().back().name(), "own (again)");
  EXPECT_EQ(check_op(op_cases().back()).text(), "own (again): passed\n");
}

}  // namespace
}  // namespace bonsai::test
