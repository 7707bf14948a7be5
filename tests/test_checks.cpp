// The checks against planted faults: each is found, and named for what it is.
#include <random>

#include "framework/autograd/record.h"
#include "framework/checks/audit.h"
#include "framework/checks/nonfinite.h"
#include "framework/checks/op_cases.h"
#include "framework/ops/ops.h"
#include "layers/check_model.h"
#include "layers/decoder.h"
#include "tests/support.h"

namespace bonsai::test {
namespace {

using In = const std::vector<Tensor>&;

Tensor x34() { return random_tensor({3, 4}, DType::f64); }

// dy goes back times a factor: 1 is right.
Tensor passed_back_times(const Tensor& x, double factor) {
  return record("planted", {x}, x.copy(), {}, factor,
                [](Tensor dy, Saved&, Sink&, double f) -> Grads { return {scale(dy, f)}; });
}

std::vector<Fault> faults_of(const GradcheckReport& report) {
  std::vector<Fault> all;
  for (const auto& t : report.tensors) all.push_back(t.fault);
  return all;
}

// ---- gradcheck

TEST(Gradcheck, AWrongGradientIsWrong) {
  const auto report =
      gradcheck("planted", [](In in) { return tanh(passed_back_times(in[0], 1.001)); }, {x34()});
  EXPECT_FALSE(report.passed());
  EXPECT_EQ(faults_of(report), std::vector{Fault::wrong}) << report.text();
  EXPECT_NE(report.text().find("[planted] input 0 f64(3,4) at ("), std::string::npos) << report.text();
  EXPECT_NE(report.text().find("is wrong: backward gives"), std::string::npos) << report.text();
  EXPECT_NE(report.text().find("      error "), std::string::npos) << "the curve";
}

// Told apart for every op: a gradient that is off by a thousandth, and a result that is rounded to f32.
TEST(Gradcheck, WrongIsWrongAndRoundingIsFloatNoiseForEveryRow) {
  for (const OpCase& row : op_cases()) {
    const auto inputs = make_inputs(row, DType::f64);
    const auto off = gradcheck(
        row.name(), [&](In in) { return passed_back_times(row.call(in), 1.001); }, inputs);
    EXPECT_FALSE(off.passed()) << row.name();
    for (const auto& t : off.tensors) EXPECT_TRUE(t.fault == Fault::wrong || t.all_zero) << off.text();
    const auto rounded = [&](In in) {
      const Tensor y = row.call(in), f32 = y.detach().to(DType::f32).to(DType::f64);
      return record("rounded", {y}, f32, {}, NoArgs{},
                    [](Tensor dy, Saved&, Sink&, NoArgs) -> Grads { return {dy}; });
    };
    const auto noise = gradcheck(row.name(), rounded, inputs);
    EXPECT_FALSE(noise.passed()) << row.name();
    for (const auto& t : noise.tensors)
      EXPECT_TRUE(t.fault == Fault::float_noise || t.error <= noise.tolerance) << noise.text();
  }
}

TEST(Gradcheck, ASlopeThatDiffersToTheLeftAndToTheRightIsAKink) {
  const auto report =
      gradcheck("kink", [](In in) { return relu(in[0]); }, {tensor({3}, {1, 0, -1}, DType::f64)});
  EXPECT_EQ(faults_of(report), std::vector{Fault::kink}) << report.text();
  EXPECT_NE(report.text().find("at (1) is a kink"), std::string::npos) << report.text();
  // Beside a kink, not on it, there is nothing to complain about.
  const auto beside = gradcheck("beside", [](In in) { return relu(in[0]); },
                                {tensor({3}, {1e-3, -1.5e-3, 1e-5}, DType::f64)});
  EXPECT_TRUE(beside.passed()) << beside.text();
  EXPECT_NE(beside.text().find("3 at another step"), std::string::npos) << beside.text();
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
    EXPECT_TRUE(t.error <= report.tolerance || t.fault == Fault::not_deterministic) << report.text();
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

// One wrong element among many is seen along a direction, wherever it is.
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

// B12: views of other layouts are checked as well as dense copies, and upstream gradients of slices reach an op.
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
  // A backward that reads its upstream gradient as if it were the first of two parts.
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

// B13: a loss that is a plain sum would pass a layer norm that goes back with nothing.
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
  EXPECT_NE(nothing.text().find("the whole gradient is zero"), std::string::npos) << nothing.text();
  EXPECT_FALSE(nothing.passed());
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
  EXPECT_EQ(without_x_hat.tensors[0].fault, Fault::wrong) << without_x_hat.text();
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
  Decoder decoder{
      &root,
      "",
      {.vocab_size = 7, .block_size = 6, .n_layers = 2, .n_heads = 2, .d_model = 8, .deviation = 0.3}};
  const auto f = [&](In in) {
    Context context;
    return decoder(in[0], context);
  };
  Probe probe(f, {tensor({1, 4}, {0, 3, 6, 2}, DType::i32)}, decoder.parameters(), 1);
  std::vector<Tensor> gradients = probe.gradients();
  EXPECT_TRUE(taylor("decoder", probe, gradients).passed());
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (probe.targets[i].name.ends_with("key.bias")) continue;  // its gradient is zero
    std::vector<Tensor> wrong = gradients;
    wrong[i] = scale(wrong[i], 1.001);
    EXPECT_FALSE(taylor("decoder", probe, wrong).passed()) << probe.targets[i].name;
  }
}

// ---- A model, layer by layer

// A layer of one's own whose gradient is wrong.
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
            }).find("no layer nowhere"),
            std::string::npos);
}

// ---- Leak audit

// One head of attention with a residual, and what may be wrong with it.
struct Planted {
  double hidden = -INFINITY;  // added where a key may not be seen
  int64_t diagonal = 0;       // so many later keys are seen
  bool mixes_rows = false, ignores_padding = false, severed = false;

  Tensor operator()(const Tensor& x, const AuditConditions& c) const {
    const int64_t batch = x.size(0), time = x.size(1);
    std::vector<double> mask;
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t i = 0; i < time; ++i)
        for (int64_t j = 0; j < time; ++j) {
          const bool padding = c.attend && !ignores_padding &&
                               c.attend.span<int32_t>()[static_cast<size_t>(b * time + j)] == 0;
          mask.push_back(j > i + diagonal || padding ? hidden : 0);
        }
    const Tensor scores = add(scale(matmul(x, x, false, true), c.attention_scale),
                              tensor({batch, time, time}, mask, x.dtype()));
    const Tensor y = matmul(softmax(scores), severed ? x.detach() : x);
    const Tensor out = add(severed ? x.detach() : x, y);
    return mixes_rows ? add(out, mean(x, 0, true)) : out;
  }
};

AuditReport audited(const Planted& planted) { return leak_audit("planted", planted, 9, 4); }

TEST(Audit, WhatIsRightPasses) {
  const AuditReport report = audited({});
  EXPECT_TRUE(report.passed()) << report.text();
  EXPECT_EQ(report.positions, 9);
}

TEST(Audit, EachPlantedLeakIsFoundAndNamed) {
  const auto first = [](const Planted& planted) {
    const AuditReport report = audited(planted);
    EXPECT_FALSE(report.passed());
    return report.leaks.empty() ? "no leak" : report.leaks.front();
  };
  EXPECT_EQ(first({.diagonal = 1}), "position 0 depends on position 1, which comes later");
  // Constants instead of -inf, each found where it is out-shouted, and the lowest float behind padding.
  EXPECT_NE(first({.hidden = -1e4}).find("which comes later (attention scale x 1e+05)"), std::string::npos);
  EXPECT_NE(first({.hidden = -1e9}).find("which comes later (attention scale x 1e+12)"), std::string::npos);
  EXPECT_NE(first({.hidden = -3.4028235e38}).find("(with padding)"), std::string::npos);
  EXPECT_NE(first({.ignores_padding = true}).find("which is padding"), std::string::npos);
  EXPECT_NE(first({.mixes_rows = true}).find("row 0 of the batch depends on row 1"), std::string::npos);
}

TEST(Audit, WithoutTheDependencesThatMustExistItProvesNothing) {
  const AuditReport report = audited({.severed = true});
  EXPECT_FALSE(report.passed());
  EXPECT_NE(report.text().find("proves nothing"), std::string::npos) << report.text();
  const AuditReport local = leak_audit(
      "local", [](const Tensor& x, const AuditConditions&) { return tanh(x); }, 5, 3);
  EXPECT_NE(local.text().find("position 1 does not depend on position 0"), std::string::npos) << local.text();
}

TEST(Audit, FewPositionsAtATimeGiveTheSame) {
  for (const int64_t tokens : {1, 20, 10000}) {
    const AuditReport report = leak_audit("planted", Planted{.diagonal = 2}, 9, 4, DType::f32,
                                          {.positions = 4, .tokens_at_once = tokens});
    EXPECT_EQ(report.positions, 4);
    EXPECT_EQ(report.leaks.front(), "position 0 depends on position 1, which comes later") << report.text();
  }
}

// ---- The first value that is not finite

std::string first_bad(const std::function<void()>& f) {
  NonfiniteTrace trace;
  const ScopedWatcher watch(trace);
  f();
  return trace.text();
}

TEST(Nonfinite, TheOpThatMadeItIsNamedNotThoseThatPassItOn) {
  const Tensor big = tensor({2}, {1, 200}, DType::f32);
  EXPECT_EQ(first_bad([&] { log(sum(exp(big))); }), "[exp] made inf of f32(2) from 1 to 200");
  EXPECT_EQ(first_bad([&] { tanh(sub(exp(big), exp(big))); }), "[exp] made inf of f32(2) from 1 to 200");
  EXPECT_EQ(first_bad([&] { exp(log(neg(big))); }), "[log] made nan of f32(2) from -200 to -1");
  EXPECT_EQ(first_bad([&] { exp(scale(big, 0.1)); }), "");
  // A mask is meant, and so is what follows from it.
  EXPECT_EQ(first_bad([&] { softmax(causal_mask(random_tensor({3, 3}, DType::f32))); }), "");
  EXPECT_EQ(
      first_bad([&] {
        softmax(masked_fill(random_tensor({2, 2}, DType::f32), tensor({2}, {0, 0}, DType::i32), -INFINITY));
      }),
      "");
}

TEST(Nonfinite, ABackwardIsNamedToo) {
  const std::string text = first_bad([] {
    Tape tape;
    const Tensor x = tape.watch(tensor({2}, {0, 4}, DType::f64));
    tape.backward(sum(sqrt(x)));
  });
  EXPECT_EQ(text,
            "the backward of [sqrt] made inf in the gradient of its input 0, f64(2), of the gradient f64(2) "
            "from 1 to 1");
}

TEST(Nonfinite, AParameterThatIsNotFiniteIsNamed) {
  Module root;
  Linear layer(&root, "head", {.in = 2, .out = 2});
  layer.parameter("head.weight").value.mutable_span<float>()[1] = NAN;
  const std::string text = first_bad([&] {
    Context context;
    layer(tensor({1, 2}, {1, 2}, DType::f32), context);
  });
  EXPECT_NE(text.find("[linear] in head read head.weight f32(2,2)"), std::string::npos) << text;
  EXPECT_NE(text.find("with nan"), std::string::npos) << text;
}

// Watching changes no gradient.
TEST(Nonfinite, GradientsUnderWatchAreTheSame) {
  for (const OpCase& row : op_cases()) {
    const auto inputs = make_inputs(row, DType::f32);
    const Result plain = differentiate(row.call, inputs);
    NonfiniteTrace trace;
    const ScopedWatcher watch(trace);
    const Result watched = differentiate(row.call, inputs);
    EXPECT_FALSE(trace.found()) << row.name() << ": " << trace.text();
    for (size_t i = 0; i < plain.gradients.size(); ++i)
      EXPECT_LE(relative_error(watched.gradients[i], plain.gradients[i]), 1e-6) << row.name();
  }
}

}  // namespace
}  // namespace bonsai::test
