// Plants faults for the audit and for the trace of non-finite values. Each fault must be found and named.
#include "bonsai/framework/autograd/record.h"
#include "bonsai/framework/backend/backend.h"
#include "bonsai/framework/checks/audit.h"
#include "bonsai/framework/checks/nonfinite.h"
#include "bonsai/framework/checks/op_cases.h"
#include "bonsai/framework/ops/ops.h"
#include "bonsai/layers/model/transformer.h"
#include "bonsai/tests/support.h"

namespace bonsai::test {
namespace {

// ---- Leak audit

// One attention head with a residual connection, and the faults that can be planted in it.
struct Planted {
  double hidden = -INFINITY;  // added to the scores of hidden keys
  int64_t diagonal = 0;       // number of later keys that a query sees
  bool mixes_rows = false, ignores_padding = false, severed = false, ignores_documents = false;
  bool causal = true;
  int64_t outputs = 0;  // number of separate queries, which read x as a source; 0: x attends to itself
  int64_t careless = -1;  // the one query that ignores padding and documents

  Tensor operator()(const Tensor& x, const AuditConditions& c) const {
    const int64_t batch = x.size(0), time = x.size(1), queries = outputs ? outputs : time;
    const auto at = [](const Tensor& ids, int64_t i) { return ids.span<int32_t>()[static_cast<size_t>(i)]; };
    std::vector<double> mask;
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t i = 0; i < queries; ++i)
        for (int64_t j = 0; j < time; ++j) {
          const bool padding =
              c.padding_mask && !ignores_padding && i != careless && at(c.padding_mask, b * time + j) == 0;
          const Tensor& own = outputs ? c.output_segment_ids : c.segment_ids;
          const bool other = c.segment_ids && !ignores_documents && i != careless &&
                             at(own, b * queries + i) != at(c.segment_ids, b * time + j);
          mask.push_back((causal && !outputs && j > i + diagonal) || padding || other ? hidden : 0);
        }
    const Tensor q = outputs
                         ? concat(std::vector<Tensor>(static_cast<size_t>(batch),
                                                      reshape(random_tensor({queries, x.size(2)}, x.dtype()),
                                                              {1, queries, x.size(2)})),
                                  0)
                         : x;
    const Tensor scores = add(scale(matmul(q, x, false, true), c.attention_scale),
                              tensor({batch, queries, time}, mask, x.dtype()));
    const Tensor y = matmul(softmax(scores), severed ? x.detach() : x);
    const Tensor out = add(severed ? q.detach() : q, y);
    return mixes_rows ? add(out, mean(mean(x, 1, true), 0, true)) : out;
  }
};

AuditReport audited(const Planted& planted) {
  return leak_audit("planted", planted, 9, 4, DType::f32,
                    {.causal = planted.causal, .outputs = planted.outputs});
}

TEST(Audit, WhatIsRightPasses) {
  const AuditReport report = audited({});
  EXPECT_TRUE(report.passed()) << report.text();
  EXPECT_EQ(report.positions, 9);
  for (const Planted& other : {Planted{.causal = false}, Planted{.outputs = 5}, Planted{.outputs = 12}})
    EXPECT_TRUE(audited(other).passed()) << audited(other).text();
}

std::string leaks_of(const Planted& planted) {
  const AuditReport report = audited(planted);
  EXPECT_FALSE(report.passed());
  std::string all;
  for (const std::string& leak : report.leaks) all += leak + "\n";
  return all;
}

TEST(Audit, EachPlantedLeakIsFoundAndNamed) {
  const auto found = [](const Planted& planted, const std::string& leak) {
    const std::string all = leaks_of(planted);
    EXPECT_NE(all.find(leak), std::string::npos) << leak << " is not in:\n" << all;
  };
  found({.diagonal = 1}, "position 0 depends on position 1, which comes later\n");
  // A finite constant instead of -inf leaks once the scores exceed it. The lowest float leaks to a query
  // whose visible keys are all padding.
  found({.hidden = -1e4}, "which comes later (attention scale x 1e+05)");
  found({.hidden = -1e9}, "which comes later (attention scale x 1e+12)");
  found({.hidden = -3.4028235e38}, "which comes later (with padding)");
  found({.ignores_padding = true}, "which is padding");
  found({.ignores_documents = true}, "which is of another document");
  found({.mixes_rows = true}, "row 0 of the batch depends on row 1");
  // The same faults in an encoder and in cross-attention.
  for (const Planted& other : {Planted{.causal = false}, Planted{.outputs = 7}}) {
    const auto with = [&](auto change) {
      Planted p = other;
      change(p);
      return p;
    };
    found(with([](Planted& p) { p.ignores_padding = true; }), "which is padding");
    found(with([](Planted& p) { p.ignores_documents = true; }), "which is of another document");
    found(with([](Planted& p) { p.mixes_rows = true; }), "row 0 of the batch depends on row 1");
    found(with([](Planted& p) { p.hidden = -1e4; }), "(attention scale x 1e+05)");
    found(with([](Planted& p) { p.hidden = -1e9; }), "(attention scale x 1e+12)");
    found(with([](Planted& p) { p.hidden = -3.4028235e38; }), "which is padding");
  }
}

TEST(Audit, WithoutTheDependencesThatMustExistItProvesNothing) {
  const AuditReport report = audited({.severed = true});
  EXPECT_FALSE(report.passed());
  EXPECT_NE(report.text().find("proves nothing"), std::string::npos) << report.text();
  const AuditReport local = leak_audit(
      "local", [](const Tensor& x, const AuditConditions&) { return tanh(x); }, 5, 3);
  EXPECT_NE(local.text().find("position 1 does not depend on position 0"), std::string::npos) << local.text();
  const AuditReport causal_encoder = leak_audit("encoder", Planted{}, 9, 4, DType::f32, {.causal = false});
  EXPECT_NE(causal_encoder.text().find("position 0 does not depend on position 1"), std::string::npos)
      << causal_encoder.text();
}

TEST(Audit, WhatIsNotFiniteProvesNothingAndIsNoLeak) {
  const AuditReport report = leak_audit(
      "infinite",
      [](const Tensor& x, const AuditConditions& c) { return scale(exp(scale(Planted{}(x, c), 1e4)), 1e30); },
      4, 3);
  EXPECT_FALSE(report.passed());
  EXPECT_TRUE(report.leaks.empty()) << report.text();
  EXPECT_NE(report.text().find("proves nothing"), std::string::npos) << report.text();
  EXPECT_NE(report.text().find("a gradient is not finite"), std::string::npos) << report.text();
}

// If the attention scale did not reach the scores, a finite mask would go unnoticed.
TEST(Audit, AScaleThatDoesNotReachTheScoresProvesNothing) {
  const AuditReport report = leak_audit(
      "deaf",
      [](const Tensor& x, const AuditConditions& c) {
        return Planted{.hidden = -1e9}(
            x, {.attention_scale = 1, .padding_mask = c.padding_mask, .segment_ids = c.segment_ids});
      },
      6, 4);
  EXPECT_NE(report.text().find("the attention scale x 1e+05 changes no output"), std::string::npos)
      << report.text();
}

// Plants the same constants in the kernel that the decoder's attention calls.
TEST(Audit, AFiniteMaskInTheDecodersAttentionIsFound) {
  static std::vector<float> table;
  constexpr int64_t T = 8;
  for (const double hidden : {-1e4, -1e9}) {
    table.clear();
    for (int64_t i = 0; i < T; ++i)
      for (int64_t j = 0; j < T; ++j) table.push_back(j > i ? static_cast<float>(hidden) : 0);
    static const auto added = [](const kernel::Attention& a) {
      kernel::Attention open = a;
      open.causal = false, open.bias = table.data();
      open.bias_step[0] = open.bias_step[1] = 0, open.bias_step[2] = T, open.bias_step[3] = 1;
      return open;
    };
    static const auto forward = kernels(Device{}, DType::f32).attention.run;
    static const auto backward = kernels(Device{}, DType::f32).attention_backward.run;
    const ScopedKernels plant({}, DType::f32, [](KernelTable& kernels) {
      kernels.attention.run = [](const kernel::Attention& a) { forward(added(a)); };
      kernels.attention_backward.run = [](const kernel::Attention& a, const kernel::AttentionGradients& d) {
        backward(added(a), d);
      };
    });
    Module root;
    Transformer transformer{
        &root,
        "",
        {.vocab_size = 7, .block_size = T, .n_layers = 1, .n_heads = 2, .d_model = 8, .init_std = 0.3}};
    const AuditReport report = leak_audit(
        "transformer",
        [&](const Tensor& x, const AuditConditions& c) {
          Context context;
          context.padding_mask = c.padding_mask, context.segment_ids = c.segment_ids,
          context.attention_scale = c.attention_scale;
          return transformer.trunk(x, context);
        },
        T, 8);
    EXPECT_FALSE(report.leaks.empty()) << hidden;
    const auto loud = [&](const std::string& leak) {
      return leak.find(hidden == -1e4 ? "scale x 1e+05" : "scale x 1e+12") != std::string::npos;
    };
    EXPECT_TRUE(std::any_of(report.leaks.begin(), report.leaks.end(), loud)) << report.text();
  }
}

// Padding must leave the other positions visible.
TEST(Audit, PaddingThatHidesEverythingProvesNothing) {
  const AuditReport report = leak_audit(
      "blind",
      [](const Tensor& x, const AuditConditions& c) { return c.padding_mask ? tanh(x) : Planted{}(x, c); }, 6,
      4);
  EXPECT_NE(report.text().find("which is no padding"), std::string::npos) << report.text();
}

// Finds all leaks and no others, whether positions are probed one by one or together. Four of nine positions
// are probed: the first, the last and two between. The last has no future, but it can see padding.
TEST(Audit, FewPositionsAtATimeGiveTheSameLeaks) {
  const auto leaks = [](const Planted& planted, int64_t tokens, const std::string& end) {
    const AuditReport report = leak_audit("planted", planted, 9, 4, DType::f32,
                                          {.positions = 4, .positions_further = 4, .tokens_at_once = tokens});
    EXPECT_EQ(report.positions, 4);
    std::vector<std::string> all;
    for (const std::string& leak : report.leaks)
      if (leak.ends_with(end)) all.push_back(leak);
    std::sort(all.begin(), all.end());
    return all;
  };
  const auto pairs = [](const std::vector<std::pair<int, int>>& of, const char* why) {
    std::vector<std::string> all;
    for (const auto& [p, t] : of)
      all.push_back(fmt::format("position {} depends on position {}, which {}", p, t, why));
    return all;
  };
  const Planted next{.diagonal = 2}, padding{.ignores_padding = true}, segment_ids{.ignores_documents = true};
  for (const int64_t tokens : {1, 20, 10000}) {
    EXPECT_EQ(leaks(next, tokens, "later"),
              pairs({{0, 1}, {0, 2}, {2, 3}, {2, 4}, {5, 6}, {5, 7}}, "comes later"));
    EXPECT_EQ(leaks(next, tokens, "(with padding)"), leaks(next, 10000, "(with padding)"));
    // All positions before 8 are padding; of those before 2, the seed chooses.
    EXPECT_EQ(leaks(padding, tokens, "is padding"),
              pairs({{2, 1}, {8, 0}, {8, 1}, {8, 2}, {8, 3}, {8, 4}, {8, 5}, {8, 6}, {8, 7}}, "is padding"));
    // Nine inputs in four documents: 0 to 2, 3 and 4, 5 and 6, 7 and 8.
    EXPECT_EQ(leaks(segment_ids, tokens, "document"),
              pairs({{5, 0}, {5, 1}, {5, 2}, {5, 3}, {5, 4}}, "is of another document"));
  }
  EXPECT_EQ(leaks(padding, 1, "later").size() + leaks(segment_ids, 1, "later").size(), 0u);
}

// B58
TEST(Audit, ADependenceOnAnotherPositionIsFoundWhereverItIs) {
  const auto audit = [](const std::function<Tensor(const Tensor&)>& f) {
    return position_wise_audit(
        "layer", [&](const Tensor& x, const AuditConditions&) { return f(x); }, 64, 3, 16);
  };
  EXPECT_EQ(audit([](const Tensor& x) { return tanh(x); }).text(), "audit layer: passed (64 positions)\n");
  const auto shifted = [](const Tensor& x, int64_t by) {  // y[t] = x[t] + x[t + by]; x is 0 beyond its end
    const Tensor rest = slice(x, 1, by, 64);
    return add(x, concat({rest, zeros({x.size(0), by, 3})}, 1));
  };
  for (const int64_t by : {1, 4, 32, 63})
    EXPECT_EQ(
        audit([&](const Tensor& x) { return shifted(x, by); }).text(),
        fmt::format(
            "audit layer: FAILED (64 positions)\n  the inputs at {} of 64 positions change outputs at other "
            "positions, that at {} first\n",
            64 - by, by));
  EXPECT_EQ(audit([](const Tensor& x) { return zeros_like(x); }).text(),
            "audit layer: proves nothing (64 positions)\n  no output depends on any input\n");
}

// Evenly spread positions always include the first and the last, even if only two are probed.
TEST(Audit, TheFirstAndTheLastPositionAreAlwaysAsked) {
  for (const int64_t positions : {2, 3, 4, 9})
    for (const int64_t careless : {0, 8}) {
      const AuditReport report =
          leak_audit("planted", Planted{.causal = false, .careless = careless}, 9, 4, DType::f32,
                     {.causal = false, .positions = positions, .positions_further = positions});
      EXPECT_FALSE(report.leaks.empty()) << positions << " positions, without " << careless;
      for (const std::string& leak : report.leaks)
        EXPECT_TRUE(leak.starts_with(fmt::format("position {} ", careless))) << leak;
    }
  const AuditReport one = leak_audit("planted", Planted{.careless = 8}, 9, 4, DType::f32,
                                     {.positions = 1, .positions_further = 1});
  EXPECT_FALSE(one.leaks.empty()) << "one alone is the last: it may depend on all";
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
  // Infinities from a mask, and values that follow from them, are intended.
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
            "from 1 to 1 and of f64(2) from 0 to 2");
}

// A backward function may call ops.
TEST(Nonfinite, AnOpInsideABackwardIsNamedWithIt) {
  const std::string text = first_bad([] {
    Tape tape;
    const Tensor x = tape.watch(tensor({2}, {1, 2}, DType::f32));
    const Tensor y =
        record("mine", {x}, x.copy(), {x}, NoArgs{},
               [](Tensor dy, Saved& s, Sink&, NoArgs) -> Grads { return {mul(dy, exp(scale(s[0], 1e3)))}; });
    tape.backward(sum(y));
  });
  EXPECT_EQ(text, "in the backward of [mine] [exp] made inf of f32(2) from 1000 to 2000");
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

// The trace changes no gradient.
TEST(Nonfinite, GradientsUnderWatchAreTheSame) {
  for (const OpCase& row : op_cases()) {
    const auto inputs = make_inputs(row, DType::f32);
    const Result plain = differentiate(row.call, inputs);
    NonfiniteTrace trace;
    const ScopedWatcher watch(trace);
    const Result watched = differentiate(row.call, inputs);
    EXPECT_FALSE(trace.found()) << row.name() << ": " << trace.text();
    for (size_t i = 0; i < plain.gradients.size(); ++i)
      EXPECT_TRUE(same_bits(watched.gradients[i], plain.gradients[i])) << row.name();
  }
}

}  // namespace
}  // namespace bonsai::test
