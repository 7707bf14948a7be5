// The gradient checks against planted faults: each must be found and correctly described.
#include "bonsai/framework/autograd/record.h"
#include "bonsai/framework/backend/backend.h"
#include "bonsai/framework/checks/op_cases.h"
#include "bonsai/framework/ops/ops.h"
#include "bonsai/layers/check_model.h"
#include "bonsai/layers/model/transformer.h"
#include "bonsai/tests/support.h"

namespace bonsai {
void register_cubed();  // own/cubed.cpp
}

namespace bonsai::test {
namespace {

using In = const std::vector<Tensor>&;

Tensor x34() { return random_tensor({3, 4}, DType::f64); }

// The identity, whose backward function multiplies dy by a factor; 1 is right.
Tensor passed_back_times(const Tensor& x, double factor) {
  return record("planted", {x}, x.copy(), {}, factor,
                [](Tensor dy, Saved&, Sink&, double f) -> Grads { return {scale(dy, f)}; });
}

std::vector<GradcheckFailure> faults_of(const GradcheckReport& report) {
  std::vector<GradcheckFailure> all;
  for (const auto& t : report.tensors) all.push_back(t.fault);
  return all;
}

// ---- gradcheck

TEST(Gradcheck, AWrongGradientIsWrong) {
  const auto report =
      gradcheck("planted", [](In in) { return tanh(passed_back_times(in[0], 1.001)); }, {x34()});
  EXPECT_FALSE(report.passed());
  EXPECT_EQ(faults_of(report), std::vector{GradcheckFailure::wrong}) << report.text();
  EXPECT_NE(report.text().find("[planted] input 0 f64(3,4) at ("), std::string::npos) << report.text();
  EXPECT_NE(report.text().find("is wrong: backward gives"), std::string::npos) << report.text();
  EXPECT_NE(report.text().find("      error "), std::string::npos) << "the curve";
}

// For every op, the check distinguishes a gradient that is off by a thousandth from a result that is rounded
// to f32.
TEST(Gradcheck, WrongIsWrongAndRoundingIsFloatNoiseForEveryRow) {
  for (const OpCase& row : op_cases()) {
    const auto inputs = make_inputs(row, DType::f64);
    const auto off = gradcheck(
        row.name(), [&](In in) { return passed_back_times(row.call(in), 1.001); }, inputs);
    EXPECT_FALSE(off.passed()) << row.name();
    for (const auto& t : off.tensors)
      EXPECT_TRUE(t.fault == GradcheckFailure::wrong || t.all_zero) << off.text();
    const auto rounded = [&](In in) {
      const Tensor y = row.call(in), f32 = y.detach().to(DType::f32).to(DType::f64);
      return record("rounded", {y}, f32, {}, NoArgs{},
                    [](Tensor dy, Saved&, Sink&, NoArgs) -> Grads { return {dy}; });
    };
    const auto noise = gradcheck(row.name(), rounded, inputs);
    EXPECT_FALSE(noise.passed()) << row.name();
    for (const auto& t : noise.tensors)
      EXPECT_TRUE(t.fault == GradcheckFailure::float_noise || t.error <= noise.tolerance) << noise.text();
  }
}

TEST(Gradcheck, ASlopeThatDiffersToTheLeftAndToTheRightIsAKink) {
  const auto report =
      gradcheck("kink", [](In in) { return relu(in[0]); }, {tensor({3}, {1, 0, -1}, DType::f64)});
  EXPECT_EQ(faults_of(report), std::vector{GradcheckFailure::kink}) << report.text();
  EXPECT_NE(report.text().find("at (1) is a kink"), std::string::npos) << report.text();
  // Points near a kink, but not on it, pass.
  const auto beside = gradcheck("beside", [](In in) { return relu(in[0]); },
                                {tensor({3}, {1e-3, -1.5e-3, 1e-5}, DType::f64)});
  EXPECT_TRUE(beside.passed()) << beside.text();
  EXPECT_NE(beside.text().find("3 of 3 elements; 3 of these agree only with another difference step)"),
            std::string::npos)
      << beside.text();
}

TEST(Gradcheck, AFunctionThatIsNotDeterministicIsNamedSo) {
  int calls = 0;
  const auto report = gradcheck("dropout",
                                [&](In in) {
                                  return dropout(in[0], 0.5, {7, static_cast<uint64_t>(++calls)});
                                },
                                {x34()});
  EXPECT_FALSE(report.passed());
  EXPECT_NE(report.text().find("not deterministic: the same inputs gave"), std::string::npos)
      << report.text();
  for (const auto& t : report.tensors)
    EXPECT_TRUE(t.error <= report.tolerance || t.fault == GradcheckFailure::not_deterministic)
        << report.text();
}

TEST(Gradcheck, ABackwardThatIsNotDeterministicIsNamedSo) {
  const auto op = [](In in) {
    return record("random", {in[0]}, in[0].copy(), {}, NoArgs{},
                  [](Tensor dy, Saved&, Sink&, NoArgs) -> Grads {
                    static double drift = 1;
                    return {scale(dy, drift += 1e-12)};
                  });
  };
  const auto report = gradcheck("random", op, {x34()});
  EXPECT_FALSE(report.passed());
  EXPECT_NE(report.text().find("backward gave two gradients of input 0"), std::string::npos) << report.text();
}

// sqrt(x^2) at 0 has a value, but its gradient is 0/0.
TEST(Gradcheck, AGradientThatIsNotANumberIsNamedSo) {
  const auto report =
      gradcheck("root", [](In in) { return sqrt(mul(in[0], in[0])); }, {tensor({3}, {1, 0, -1}, DType::f64)});
  EXPECT_FALSE(report.passed());
  EXPECT_EQ(faults_of(report), std::vector{GradcheckFailure::not_finite}) << report.text();
  EXPECT_TRUE(report.not_deterministic.empty()) << report.text();
}

TEST(Gradcheck, WhatDependsOnNothingIsNoProof) {
  const auto constant = [](In in) { return scale(in[0], 0); };
  EXPECT_FALSE(gradcheck("constant", constant, {x34()}).passed());
  EXPECT_FALSE(taylor("constant", constant, {x34()}).passed());
  // If the result depends on another input, a zero gradient that agrees with the differences passes.
  EXPECT_TRUE(gradcheck("one of two", [](In in) { return add(scale(in[0], 0), tanh(in[1])); }, {x34(), x34()})
                  .passed());
  EXPECT_FALSE(gradcheck("severed", [](In in) { return add(tanh(in[0].detach()), tanh(in[1])); },
                         {x34(), random_tensor({3, 4}, DType::f64, 2)})
                   .passed());
}

// B57: ReLU of negative inputs, a dead ReLU layer, and one dead input next to a live one.
TEST(Gradcheck, AZeroThatAgreesIsNamedAsNoProof) {
  const auto relu_of = [](In in) { return relu(in[0]); };
  const std::string line = ": gradient and differences are all zero; they agree, but prove nothing\n";
  const auto dead = gradcheck("relu", relu_of, {tensor({1}, {-0.01}, DType::f64)});
  EXPECT_TRUE(dead.proves_nothing() && !dead.passed());
  EXPECT_EQ(dead.text(), "gradcheck relu: PROVES NOTHING (1 ops, 0 layers, 1 tensors, 1 of 1 elements)\n"
                         "  [relu] input 0 f64(1)" + line);
  EXPECT_TRUE(gradcheck("relu", relu_of, {tensor({2}, {-1, -2}, DType::f64)}).proves_nothing());
  const auto beside =
      gradcheck("one of two", [](In in) { return add(scale(in[0], 0), tanh(in[1])); }, {x34(), x34()});
  EXPECT_TRUE(beside.passed()) << beside.text();
  EXPECT_NE(beside.text().find("  [scale] input 0 f64(3,4)" + line), std::string::npos) << beside.text();
  // A zero gradient that differs from the differences is reported as wrong.
  const auto severed =
      gradcheck("severed", [](In in) { return scale(passed_back_times(in[0], 0), 2); }, {x34()});
  EXPECT_FALSE(severed.passed() || severed.proves_nothing());
  EXPECT_EQ(severed.text().find("prove nothing"), std::string::npos) << severed.text();
}

// B67
TEST(Gradcheck, WhatNoOpReadsIsSaidInAnErrorAndInAZero) {
  Module root({.dtype = DType::f64});
  Linear layer{&root, "mine", {.in = 4, .out = 2}};
  const auto detached = [&](In in) { return linear(in[0], layer.weight->value, layer.bias->value.detach()); };
  const std::string wrong = gradcheck("detached", detached, {x34()}, layer.parameters()).text();
  EXPECT_EQ(wrong.find("no op]"), std::string::npos) << wrong;
  EXPECT_NE(wrong.find("  mine.bias f64(2) at ("), std::string::npos) << wrong;
  EXPECT_NE(wrong.find("; no recorded op reads it, as if it were detached\n"), std::string::npos) << wrong;
  const auto unused = [&](In in) { return linear(in[0], layer.weight->value); };
  const std::string zero = gradcheck("unused", unused, {x34()}, layer.parameters()).text();
  EXPECT_NE(
      zero.find(
          "  mine.bias f64(2): gradient and differences are all zero; they agree, but prove nothing; no "
          "recorded op reads it\n"),
      std::string::npos)
      << zero;
}

TEST(Gradcheck, AReportIsShort) {
  std::vector<Tensor> inputs(20, x34());
  const auto f = [](In in) {
    Tensor y = tanh(passed_back_times(in[0], 2));
    for (size_t i = 1; i < in.size(); ++i) y = add(y, tanh(passed_back_times(in[i], 2)));
    return y;
  };
  const std::string text = gradcheck("twenty", f, inputs).text();
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 15) << text;
  EXPECT_NE(text.find("and 13 more"), std::string::npos) << text;
}

TEST(Gradcheck, LargeTensorsAreSampledAndTheReportSaysSo) {
  const auto report =
      gradcheck("large",
                [](In in) {
                  return concat({tanh(reshape(in[0], {5000})), tanh(reshape(in[1], {4096}))}, 0);
                },
                {random_tensor({50, 100}, DType::f64), random_tensor({64, 64}, DType::f64)});
  EXPECT_TRUE(report.passed()) << report.text();
  EXPECT_EQ(report.tensors[0].checked, 256);
  EXPECT_EQ(report.tensors[0].directions, 4);
  EXPECT_EQ(report.tensors[1].checked, 4096);
  EXPECT_NE(report.text().find("4352 of 9096 elements, 4 directions"), std::string::npos) << report.text();
}

// A random direction detects one wrong element among many.
TEST(Gradcheck, ADirectionSeesEveryElement) {
  const auto f = [](In in) {
    return record("planted", {in[0]}, scale(in[0].detach(), 2), {}, NoArgs{},
                  [](Tensor dy, Saved&, Sink&, NoArgs) -> Grads {
                    Tensor dx = scale(dy, 2);
                    dx.mutable_span<double>()[3333] *= -1;
                    return {dx};
                  });
  };
  const auto report = gradcheck("planted", f, {random_tensor({50, 100}, DType::f64)}, {}, {.samples = 0});
  EXPECT_FALSE(report.passed()) << report.text();
}

// B12: strided views are checked like dense tensors, and an op receives upstream gradients that are slices.
TEST(Gradcheck, TransposedAndSlicedInputs) {
  const Tensor x = random_tensor({3, 5}, DType::f64), w = random_tensor({4, 2}, DType::f64);
  EXPECT_TRUE(gradcheck("sigmoid of a transpose",
                        [](In in) {
                          return sigmoid(permute(in[0], {1, 0}));
                        },
                        {x})
                  .passed());
  EXPECT_TRUE(
      gradcheck("linear of columns", [](In in) { return linear(slice(in[0], 1, 1, 3), in[1]); }, {x, w})
          .passed());
  // A backward function that would read its upstream gradient at a wrong offset.
  const auto faulty = [](In in) {
    const Tensor y =
        record("faulty", {in[0]}, scale(in[0].detach(), 3), {}, NoArgs{},
               [](Tensor dy, Saved&, Sink&, NoArgs) -> Grads {
                 Tensor dx = scale(dy, 3);
                 std::rotate(dx.mutable_span<double>().begin(), dx.mutable_span<double>().begin() + 1,
                             dx.mutable_span<double>().end());
                 return {dx};
               });
    return concat({tanh(in[0]), y}, 1);
  };
  EXPECT_FALSE(gradcheck("faulty", faulty, {x}).passed());
}

// B13: with a plain sum as the loss, a layer norm whose gradient is always 0 would pass.
TEST(Gradcheck, LayerNormIsNotProvenByASum) {
  const std::vector<Tensor> in = {tensor({1, 4}, {1, 2, 3, 4}, DType::f64),
                                  tensor({4}, {1, 1, 1, 1}, DType::f64),
                                  tensor({4}, {0, 0, 0, 0}, DType::f64)};
  const auto f = [](In in) { return layer_norm(in[0], in[1], in[2], 1e-5); };
  expect_values(differentiate(f, in, tensor({1, 4}, {1, 1, 1, 1}, DType::f64)).gradients[0], {0, 0, 0, 0},
                1e-12);
  expect_values(differentiate(f, in, tensor({1, 4}, {1, 0, 0, 0}, DType::f64)).gradients[0],
                {0.2683303, -0.3577684, -0.0894434, 0.1788815}, 1e-7);
  const auto planted = [&](auto kernel) {
    const ScopedKernels plant({}, DType::f64,
                              [&](KernelTable& table) { table.layer_norm_backward.run = kernel; });
    return gradcheck("layer_norm", f, in);
  };
  const auto nothing = planted([](View x, View, View, View, MutView dx, GradView dw, GradView db) {
    std::fill_n(dx.as<double>(), x.shape.elements(), 0.0);
    std::fill_n(dw.as<double>(), 4, 0.0), std::fill_n(db.as<double>(), 4, 0.0);
  });
  EXPECT_FALSE(nothing.passed());
  EXPECT_EQ(nothing.tensors[0].fault, GradcheckFailure::wrong) << nothing.text();
  const auto without_x_hat =
      planted([](View x, View w, View stats, View dy, MutView dx, GradView dw, GradView db) {
        double mean = 0;
        for (int i = 0; i < 4; ++i) mean += w.as<double>()[i] * dy.as<double>()[i] / 4;
        for (int i = 0; i < 4; ++i)
          dx.as<double>()[i] = stats.as<double>()[1] * (w.as<double>()[i] * dy.as<double>()[i] - mean);
        for (int i = 0; i < 4; ++i) {
          dw.as<double>()[i] = dy.as<double>()[i] * (x.as<double>()[i] - 2.5) * stats.as<double>()[1];
          db.as<double>()[i] = dy.as<double>()[i];
        }
      });
  EXPECT_FALSE(without_x_hat.passed());
  EXPECT_EQ(without_x_hat.tensors[0].fault, GradcheckFailure::wrong) << without_x_hat.text();
}

// ---- Taylor

TEST(Taylor, SlopeTwoForEveryRowAndLessForAFactor) {
  for (const OpCase& row : op_cases()) {
    Probe probe(row.call, make_inputs(row, DType::f64), {}, 1);
    const std::vector<Tensor> right = probe.gradients();
    const TaylorReport report = taylor(row.name(), probe, right);
    EXPECT_TRUE(report.passed()) << report.text();
    std::vector<Tensor> wrong;
    for (const Tensor& g : right) wrong.push_back(scale(g, 1.001));
    EXPECT_FALSE(taylor(row.name(), probe, wrong).passed()) << row.name();
    printf("%s", report.text().c_str());
  }
}

TEST(Taylor, SeesOneWrongTensorOfAModel) {
  Module root({.dtype = DType::f64});
  Transformer transformer{
      &root,
      "",
      {.vocab_size = 7, .block_size = 6, .n_layers = 2, .n_heads = 2, .d_model = 8, .init_std = 0.3}};
  const auto f = [&](In in) {
    Context context;
    return transformer(in[0], context);
  };
  Probe probe(f, {tensor({1, 4}, {0, 3, 6, 2}, DType::i32)}, transformer.parameters(), 1);
  std::vector<Tensor> gradients = probe.gradients();
  EXPECT_TRUE(taylor("transformer", probe, gradients).passed());
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (probe.targets[i].name.ends_with("key.bias")) continue;  // the gradient of a key's bias is zero
    std::vector<Tensor> wrong = gradients;
    wrong[i] = scale(wrong[i], 1.001);
    EXPECT_FALSE(taylor("transformer", probe, wrong).passed()) << probe.targets[i].name;
  }
}

// The kink is near the point, on one side of it.
TEST(Taylor, AKinkToOneSideIsNoFault) {
  const Tensor x = tensor({2}, {1e-9, 1}, DType::f64);
  const auto right = [](In in) { return add(relu(in[0]), mul(in[0], in[0])); };
  EXPECT_TRUE(taylor("kink", right, {x}).passed());
  EXPECT_FALSE(taylor("wrong", [&](In in) { return passed_back_times(right(in), 1.001); }, {x}).passed());
}

// ---- A model, layer by layer

// A custom layer with a wrong gradient.
class Cube final : public Layer {
 public:
  using Layer::Layer;

 protected:
  Tensor forward(const Tensor& x, Context&) override {
    const Tensor v = x.detach();
    return record(
        "cube", {x}, mul(v, mul(v, v)), {x}, NoArgs{},
        [](Tensor dy, Saved& s, Sink&, NoArgs) -> Grads { return {mul(dy, scale(mul(s[0], s[0]), 2))}; });
  }
};

class Small final : public Layer {
 public:
  Small(Module* parent, std::string name) : Layer(parent, std::move(name)) {}
  Linear up{this, "up", {.in = 4, .out = 6}};
  Cube cube{this, "cube"};
  Linear down{this, "down", {.in = 6, .out = 4}};

 protected:
  Tensor forward(const Tensor& x, Context& c) override { return down(cube(up(x, c), c), c); }
};

TEST(CheckModel, FindsTheLayerWhoseBackwardIsWrong) {
  Module root({.dtype = DType::f64});
  Small small(&root, "small");
  const ModelCheck check = check_model("small", small, x34(), {});
  EXPECT_FALSE(check.passed());
  std::vector<std::string> failed;
  for (const auto& r : check.reports)
    if (!r.passed()) failed.push_back(r.name);
  EXPECT_EQ(failed, (std::vector<std::string>{"small", "small.cube"}));
  EXPECT_FALSE(check.taylor.passed());
  const ModelCheck one = check_model("small", small, x34(), {}, {.layer = "small.cube"});
  EXPECT_EQ(one.reports.size(), 1u);
  EXPECT_FALSE(one.passed());
  EXPECT_TRUE(check_model("small", small, x34(), {}, {.layer = "small.down"}).passed());
  EXPECT_NE(error_of([&] {
              check_model("small", small, x34(), {}, {.layer = "nowhere"});
            }).find("no layer nowhere with"),
            std::string::npos);
}

// The layer of framework/checks/README.md, selected by a config.
TEST(CheckModel, FindsALayerOfOnesOwnInAModel) {
  register_cubed();
  Module root({.dtype = DType::f64});
  Transformer transformer{
      &root,
      "",
      {.vocab_size = 7, .block_size = 6, .n_layers = 2, .n_heads = 2, .d_model = 8, .mlp = "cubed"}};
  const Tensor ids = tensor({1, 4}, {0, 3, 6, 2}, DType::i32);
  const ModelCheck check = check_model("transformer", transformer, ids, {});
  std::vector<std::string> failed;
  for (const auto& r : check.reports)
    if (!r.passed()) failed.push_back(r.name);
  EXPECT_EQ(failed,
            (std::vector<std::string>{"transformer", "block.0", "block.0.mlp", "block.1", "block.1.mlp"}));
  EXPECT_TRUE(check.in_directions_alone.empty()) << check.text();
  // The last assignment to a config's key counts.
  TransformerConfig config = transformer.config();
  config.mlp = "feed_forward";
  Module other({.dtype = DType::f64});
  Transformer standard{&other, "", config};
  EXPECT_NE(error_of([&] { standard.parameter("block.0.mlp.cube.weight"); }).find("there is no parameter"),
            std::string::npos);
  EXPECT_EQ(error_of([&] { standard.parameter("block.0.mlp.down.weight"); }), "no error");
}

TEST(CheckModel, ChecksAttentionAsALayer) {
  Module root({.dtype = DType::f64});
  Transformer transformer{
      &root, "", {.vocab_size = 7, .block_size = 6, .n_layers = 1, .n_heads = 2, .d_model = 8}};
  const Tensor ids = tensor({1, 4}, {0, 3, 6, 2}, DType::i32);
  const auto attention = [&] {
    return check_model("transformer", transformer, ids, {}, {.layer = "block.0.attention"}).reports.at(0);
  };
  EXPECT_EQ(attention().name, "block.0.attention");
  EXPECT_TRUE(attention().passed()) << attention().text();
  EXPECT_TRUE(attention().ops.contains("scaled_dot_product_attention"));
  const ScopedKernels plant({}, DType::f64, [](KernelTable& table) {
    static const auto real = table.attention_backward.run;
    table.attention_backward.run = [](const kernel::Attention& a, const kernel::AttentionGradients& d) {
      kernel::Attention wrong = a;
      wrong.scale *= 1.001;
      real(wrong, d);
    };
  });
  EXPECT_FALSE(attention().passed());
}

}  // namespace
}  // namespace bonsai::test
