// Cross-entropy and embedding at the limits of their ranges. A loss that is NaN, that weights a micro-batch
// too much or that reads beyond its table ruins a whole run.
#include "bonsai/framework/ops/ops.h"
#include "bonsai/tests/support.h"

namespace bonsai::test {
namespace {

constexpr double kInf = INFINITY;
constexpr DType kFloating[] = {DType::f32, DType::f64};

Tensor ids(const std::vector<double>& v) { return tensor({static_cast<int64_t>(v.size())}, v, DType::i32); }
Tensor row(const std::vector<double>& v,
           DType dtype) { return tensor({1, static_cast<int64_t>(v.size())}, v, dtype); }

// The loss and its gradient, multiplied by `upstream`.
Result loss_of(const Tensor& logits, const Tensor& target, const CrossEntropyOptions& o = {},
               double upstream = 1) {
  return differentiate([&](const std::vector<Tensor>& in) { return cross_entropy(in[0], target, o); },
                       {logits},
                       tensor({}, {upstream}, logits.dtype()));
}

TEST(Embedding, ARepeatedTokenGetsTheSumOfItsGradients) {  // B07
  const auto gradient = [](const Tensor& table, const Tensor& at, const Tensor& dy) {
    return differentiate([&](const std::vector<Tensor>& in) { return embedding(in[0], at); }, {table},
                         dy).gradients[0];
  };
  for (const int count : {1, 2}) {
    const Threads scope(count);
    for (const DType dtype : kFloating) {
      const double tolerance = dtype == DType::f32 ? 1e-7 : 0;
      expect_values(gradient(tensor({1, 1}, {0.1}, dtype), ids({0, 0}), tensor({2, 1}, {0.2, 0.3}, dtype)),
                    {0.5}, tolerance);
      expect_values(gradient(zeros({4, 2}, dtype), ids({1, 1, 2}), full({3, 2}, 1, dtype)),
                    {0, 0, 2, 2, 1, 1, 0, 0});
      const Tensor many =
          gradient(zeros({3, 500}, dtype), tensor({8, 8}, std::vector<double>(64, 2), DType::i32),
                                   full({8, 8, 500}, 1, dtype));
      std::vector<double> right(1500);
      std::fill(right.begin() + 1000, right.end(), 64);
      expect_values(many, right);
    }
  }
}

TEST(Loss, OnlyIgnoredTargetsGiveZeroAndNotNaN) {  // B14
  for (const DType dtype : kFloating)
    for (const auto reduction : {CrossEntropyOptions::mean, CrossEntropyOptions::sum})
      for (const double smoothing : {0.0, 0.1}) {
        const CrossEntropyOptions o{.label_smoothing = smoothing, .reduction = reduction};
        // An ignored row must have no effect.
        for (const double logit : {3.0, kInf, static_cast<double>(NAN)}) {
          const Result r = loss_of(row({1, 2, logit}, dtype), ids({-100}), o);
          EXPECT_EQ(r.y.item(), 0);
          expect_values(r.gradients[0], {0, 0, 0});
        }
        const Result nothing = loss_of(zeros({0, 3}, dtype), ids({}), o);
        EXPECT_EQ(nothing.y.item(), 0);
        EXPECT_EQ(nothing.gradients[0].shape(), (Shape{0, 3}));
      }
}

// Logits of two classes with the given losses: the loss of target 0 is log(1 + exp(z)).
Tensor with_losses(const std::vector<double>& losses) {
  std::vector<double> logits;
  for (double loss : losses) logits.insert(logits.end(), {0, std::log(std::expm1(loss))});
  return tensor({static_cast<int64_t>(losses.size()), 2}, logits, DType::f64);
}

TEST(Loss, MicroBatchesOfUnequalCountWeighByTheirTokens) {  // B15 (a)
  const CrossEntropyOptions sum{.reduction = CrossEntropyOptions::sum};
  std::vector<double> second_losses(9, 1.0), first_losses = {2.0, 0.7, 0.7};
  const Tensor first = with_losses(first_losses), second = with_losses(second_losses);
  const Tensor first_ids = ids({0, -100, -100}), second_ids = ids(std::vector<double>(9, 0));
  const Result a = loss_of(first, first_ids, sum, 0.1), b = loss_of(second, second_ids, sum, 0.1);
  EXPECT_NEAR((a.y.item() + b.y.item()) / 10, 1.1, 1e-14);
  // One batch of all rows, ignored rows included, has the same mean loss and the same gradient.
  std::vector<double> all_ids = first_ids.values(), more = second_ids.values();
  all_ids.insert(all_ids.end(), more.begin(), more.end());
  const Result whole = loss_of(concat({first, second}, 0), ids(all_ids));
  EXPECT_NEAR(whole.y.item(), 1.1, 1e-14);
  EXPECT_LE(relative_error(concat({a.gradients[0], b.gradients[0]}, 0), whole.gradients[0]), 1e-14);
  const double mean_of_means =
      (loss_of(first, first_ids).y.item() + loss_of(second, second_ids).y.item()) / 2;
  EXPECT_NEAR(mean_of_means, 1.5, 1e-14);
}

TEST(Loss, LogitsOfAnySizeGiveTheRightDigits) {  // B05
  const struct {
    std::vector<double> logits;
    double target, loss;
    std::vector<double> gradient;
  } cases[] = {{{-431, 279, 427}, 0, 858, {-1, 0, 1}},
               {{1e8, 1e8}, 1, 0.69314718055994530942, {0.5, -0.5}},
               {{1, 2, 3}, 2, 0.40760596444438030,
                {0.09003057317038046, 0.24472847105479767, -0.33475904422517813}},
               {{0, 0, -kInf}, 0, 0.69314718055994530942, {-0.5, 0.5, 0}}};
  for (const DType dtype : kFloating) {
    const double tolerance = dtype == DType::f32 ? 1.2e-7 : 2e-15;
    for (const auto& c : cases) {
      const Result r = loss_of(row(c.logits, dtype), ids({c.target}));
      EXPECT_NEAR(r.y.item() / c.loss, 1, tolerance) << c.loss;
      for (size_t i = 0; i < c.gradient.size(); ++i)
        EXPECT_NEAR(r.gradients[0].values()[i], c.gradient[i], tolerance) << c.loss << " element " << i;
      // The reference: log_softmax and the selection of the target.
      const Result pair = differentiate(
          [&](const std::vector<Tensor>& in) { return reshape(slice(log_softmax(in[0]), 1, c.target,
                                                                    c.target + 1), {}); },
          {row(c.logits, dtype)}, tensor({}, {-1}, dtype));
      EXPECT_NEAR(-pair.y.item() / c.loss, 1, tolerance);
      EXPECT_LE(relative_error(pair.gradients[0], r.gradients[0]), 4 * tolerance);
    }
  }
}

// If a probability is 1 - e, the gradient is about e; computed as 1 - p in f32 it would lose its digits.
TEST(Loss, TheGradientOfACertainTargetKeepsItsDigits) {
  for (const DType dtype : kFloating)
    for (const double gap : {10.0, 20.0, 60.0}) {
      const double tolerance = (dtype == DType::f32 ? 1e-5 : 1e-13),
          e = std::exp(-gap) / (1 + std::exp(-gap));
      const Tensor logits = row({-gap, 0}, dtype);
      const auto expect_pair = [&](const Tensor& gradient, double right, const char* op) {
        EXPECT_NEAR(gradient.values()[0] / right, 1, tolerance) << op << " " << name_of(dtype) << " " << gap;
        EXPECT_NEAR(gradient.values()[1] / -right, 1, tolerance) << op << " " << name_of(dtype) << " " << gap;
      };
      expect_pair(loss_of(logits, ids({1})).gradients[0], e, "cross_entropy");
      const auto log_p = [](const std::vector<Tensor>& in) { return log_softmax(in[0]); };
      expect_pair(differentiate(log_p, {logits}, row({0, -1}, dtype)).gradients[0], e, "log_softmax");
      const auto p = [](const std::vector<Tensor>& in) { return softmax(in[0]); };
      expect_pair(differentiate(p, {logits}, row({1, 0}, dtype)).gradients[0], e * (1 - e), "softmax");
    }
}

TEST(Loss, ANaNLogitShowsInTheLoss) {
  for (const DType dtype : kFloating)
    EXPECT_TRUE(std::isnan(loss_of(row({0, NAN, 1}, dtype), ids({0})).y.item()));
}

// The smoothed target (1-s) one_hot + s/V gives every class a weight, so a class of probability 0 has an
// infinite loss, as in the formula; without smoothing it has none.
TEST(Loss, SmoothingFollowsItsFormula) {
  for (const DType dtype : kFloating) {
    const double tolerance = dtype == DType::f32 ? 1e-6 : 1e-14;
    const Tensor logits = row({0.5, -1, 2, 0}, dtype);
    const std::vector<double> log_p = log_softmax(logits.to(DType::f64)).values();
    for (const double s : {0.0, 0.1, 1.0}) {
      double right = 0;
      std::vector<double> gradient;
      for (size_t i = 0; i < 4; ++i) {
        const double weight = (i == 2 ? 1 - s : 0) + s / 4;
        right -= weight * log_p[i];
        gradient.push_back(std::exp(log_p[i]) - weight);
      }
      const Result r = loss_of(logits, ids({2}), {.label_smoothing = s});
      EXPECT_NEAR(r.y.item(), right, tolerance);
      expect_values(r.gradients[0], gradient, tolerance);
    }
    EXPECT_EQ(loss_of(row({0, 1, -kInf}, dtype), ids({0}), {.label_smoothing = 0.1}).y.item(), kInf);
  }
  for (const double s : {-0.1, 1.1, static_cast<double>(NAN)}) {
    const std::string error =
        error_of([&] { cross_entropy(zeros({1, 2}), ids({0}), {.label_smoothing = s}); });
    EXPECT_NE(error.find("label smoothing is"), std::string::npos) << error;
  }
}

TEST(Range, AnIdOutsideTheVocabularyIsNamedWithItsPlace) {  // B30
  const CrossEntropyOptions ignore{.ignore_index = -1};
  const auto look_up =
      [](const std::vector<double>& at, DType dtype) { embedding(zeros({10, 2}, dtype), ids(at)); };
  const auto lose = [&](const std::vector<double>& at, DType dtype) {
    cross_entropy(zeros({static_cast<int64_t>(at.size()), 10}, dtype), ids(at), ignore);
  };
  const struct {
    const char* op;
    std::function<void(const std::vector<double>&, DType)> call;
    std::vector<double> good;
    std::vector<std::pair<std::vector<double>, std::string>> bad;
  } rows[] = {
      {"embedding", look_up, {9, 0},
       {{{0, 10}, "id 10 at position 1 is not in [0, 10)"}, {{-1}, "id -1 at position 0 is not in [0, 10)"},
        {{3, 2147483647, 11}, "id 2147483647 at position 1 is not in [0, 10)"},
        {{0, 0, -2147483648.0}, "id -2147483648 at position 2"}}},
      {"cross_entropy", lose, {9, -1, 0},
       {{{9, 10}, "id 10 at position 1 is not in [0, 10)"},
        {{-1, -4}, "id -4 at position 1 is not in [0, 10)"},
        {{-100}, "id -100 at position 0"}}}};
  for (const auto& r : rows)
    for (const DType dtype : kFloating)
      for (const auto& [at, text] : r.bad) {
        const std::string error = error_of([&, at = at] { r.call(at, dtype); });
        EXPECT_NE(error.find(std::string("[") + r.op + "] " + text), std::string::npos) << error;
        EXPECT_EQ(error_of([&] { r.call(r.good, dtype); }), "no error");  // the error is not reported again
      }
}

TEST(Range, AnIgnoredTargetCountsForNothing) {
  for (const DType dtype : kFloating) {
    const Tensor logits = random_tensor({3, 10}, dtype);
    const Result all = loss_of(logits, ids({9, -1, 4}), {.ignore_index = -1});
    const Result two =
        loss_of(concat({slice(logits, 0, 0, 1), slice(logits, 0, 2, 3)}, 0), ids({9, 4}),
                {.ignore_index = -1});
    EXPECT_NEAR(all.y.item(), two.y.item(), 1e-6);
    const auto gradient = split(all.gradients[0], 0, {1, 1, 1});
    expect_values(gradient[1], std::vector<double>(10));
    EXPECT_LE(relative_error(concat({gradient[0], gradient[2]}, 0), two.gradients[0]), 1e-6);
    // An ignore_index inside the vocabulary takes precedence over that class.
    EXPECT_EQ(loss_of(logits, ids({4, 4, 4}), {.ignore_index = 4}).y.item(), 0);
  }
}

TEST(Range, TargetsThatDoNotFitTheLogitsAreRefused) {
  for (const Tensor& target : {zeros({2}, DType::i32), zeros({3, 1}, DType::i32), zeros({}, DType::i32),
                               zeros({3}), Tensor()}) {
    const std::string error = error_of([&] { cross_entropy(zeros({3, 5}), target); });
    EXPECT_NE(error.find("[cross_entropy]"), std::string::npos) << error;
  }
  EXPECT_NE(error_of([&] { embedding(zeros({3}), ids({0})); })
            .find("the table must be (entries,width), got f32(3)"), std::string::npos);
  EXPECT_NE(error_of([&] { embedding(zeros({3, 2}), zeros({1})); }).find("must be i32"), std::string::npos);
}

// Inputs for which a plain formula would give infinity times zero.
TEST(Edges, GradientsStayFinite) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Tensor row = full({1, 3}, -INFINITY, dtype);
    const Result flat =
        differentiate([](const auto& in) { return log_softmax(in[0]); }, {row},
                      tensor({1, 3}, {1, 2, 4}, dtype));
    for (double g : flat.gradients[0].values()) EXPECT_EQ(g, 0);
    const Tensor far = tensor({4}, {-1e20, 1e20, -300, 300}, dtype);
    for (auto* op : {gelu, gelu_tanh}) {
      const Result r = differentiate([&](const auto& in) { return op(in[0]); }, {far}, full({4}, 1, dtype));
      expect_values(r.gradients[0], {0, 1, 0, 1});
    }
  }
  const Tensor one = full({1}, 1);
  EXPECT_NE(error_of([&] { layer_norm(one, one, one, -1); }).find("eps is -1"), std::string::npos);
}

}  // namespace
}  // namespace bonsai::test
