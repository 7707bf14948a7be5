// Faults of the tape or the parameter arena that would ruin training: lost or doubled gradients, gradients
// computed from changed values, and stack overflow by deep recursion.
#include <pthread.h>

#include <limits>
#include <memory>
#include <thread>

#include "bonsai/framework/autograd/arena.h"
#include "bonsai/framework/autograd/dispatch.h"
#include "bonsai/framework/autograd/record.h"
#include "bonsai/framework/ops/ops.h"
#include "bonsai/tests/support.h"

namespace bonsai::test {
namespace {

Tensor scalar(double value) { return tensor({}, {value}, DType::f64); }
Tensor column(const std::vector<double>& v) { return tensor({static_cast<int64_t>(v.size())}, v,
                                                            DType::f64); }
bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
void double_in_place(Tensor x) { kernels(x).scale(view(x), 2, mut(x)); }

double derivative(double at, const std::function<Tensor(const Tensor&)>& f) {
  return differentiate([&](const std::vector<Tensor>& in) { return f(in[0]); }, {scalar(at)},
                       scalar(1)).gradients[0].item();
}

TEST(Tape, ASharedValueGetsEveryContributionOnce) {  // B06
  const auto branches = [](const Tensor& y) { return add(scale(y, 2), scale(y, 5)); };
  const auto twice = [](const Tensor& x) { return add(x, x); };
  const auto product_shared = [](const Tensor& x) {
    const Tensor k = scalar(1), xk = mul(x, k);
    return add(add(mul(x, xk), mul(x, xk)), mul(mul(x, x), k));
  };
  EXPECT_EQ(derivative(2, [&](const Tensor& x) { return branches(scale(x, 3)); }), 21);
  EXPECT_EQ(derivative(1, [&](const Tensor& a) { return twice(twice(a)); }), 4);
  EXPECT_EQ(derivative(1, product_shared), 6);
}

TEST(Tape, ATiedWeightIsSteppedAndCountedOnce) {  // B08
  Parameter w{"w", tensor({1, 1}, {2}, DType::f64), true};
  ParameterArena arena({&w});
  Tape tape;
  const Tensor x = tensor({1, 1}, {3}, DType::f64);
  tape.backward(matmul(w.value, matmul(w.value, x)));
  EXPECT_EQ(w.contributions, 2);
  EXPECT_EQ(tape.gradient(w.value).item(), 12);
  Tensor& gradients = arena.gradients();
  EXPECT_EQ(std::sqrt(sum(mul(gradients, gradients)).item()), 12);
  const Tensor step = scale(gradients, -0.1);
  kernels(step).accumulate(view(step), mut(arena.values()));
  EXPECT_NEAR(w.value.item(), 0.8, 1e-15);
  EXPECT_EQ(arena.parameters().size(), 1u);
}

TEST(Tape, AParameterNamedTwiceIsHeldOnce) {  // B08 (d)
  Parameter w{"w", random_tensor({65, 16}, DType::f32), true};
  ParameterArena arena({&w, &w});
  EXPECT_EQ(arena.parameters().size(), 1u);
  EXPECT_EQ(arena.elements(), 65 * 16);
}

TEST(Tape, AChangedSavedTensorNeverGivesAnotherGradient) {  // B10
  const struct {
    const char* name;
    Tensor (*op)(const Tensor&);
    std::vector<double> right;  // the gradient of sum(2 y)
  } rows[] = {{"sigmoid", sigmoid, {0.3932239, 0.2099872, 0.0903533}},
              {"exp", exp, {5.4365637, 14.7781122, 40.1710738}},
              {"tanh", tanh, {0.8399487, 0.1413016, 0.0197321}},
              {"softmax", softmax, {0, 0, 0}},
              {"relu", relu, {2, 2, 2}}};
  for (const auto& row : rows) {
    Tape tape;
    const Tensor x = tape.watch(column({1, 2, 3}));
    const Tensor y = row.op(x);
    const Tensor total = sum(y);
    double_in_place(y.detach());
    const std::string error = error_of([&] { tape.backward(total); });
    if (error == "no error")
      expect_values(tape.gradient(x), row.right, 1e-6);
    else
      EXPECT_TRUE(has(error, std::string("[") + row.name + "]") && has(error, "changed in place")) << error;
  }
}

TEST(Tape, AnUpdateBetweenForwardAndBackwardIsNoticed) {  // B10
  for (const bool through_arena : {false, true}) {
    Parameter w{"block.0.weight", random_tensor({3, 2}, DType::f64), true};
    std::unique_ptr<ParameterArena> arena;
    if (through_arena) arena = std::make_unique<ParameterArena>(std::vector<Parameter*>{&w});
    Tape tape;
    const Tensor x = tape.watch(random_tensor({4, 2}, DType::f64));
    const Tensor y = sum(linear(x, w.value));
    double_in_place(arena ? arena->values() : w.value);
    const std::string error = error_of([&] { tape.backward(y); });
    EXPECT_TRUE(has(error, "[linear] block.0.weight f64(3,2) was changed in place")) << error;
  }
}

TEST(Tape, AChangeThroughAnAliasIsNoticed) {
  Tape tape;
  const Tensor x = tape.watch(random_tensor({4, 2}, DType::f64));
  const Tensor y = exp(x), part = slice(reshape(y, {8}), 0, 6, 8);
  const Tensor total = sum(y);
  double_in_place(part.detach());
  EXPECT_TRUE(has(error_of([&] { tape.backward(total); }), "[exp]"));
}

void long_chain(bool backward) {
  constexpr int kLength = 300000;
  Tape tape;
  const Tensor x = tape.watch(scalar(0)), one = scalar(1);
  Tensor y = x;
  for (int i = 0; i < kLength; ++i) y = add(y, one);
  EXPECT_EQ(y.item(), kLength);
  EXPECT_EQ(tape.size(), static_cast<size_t>(kLength));
  if (!backward) return;
  tape.backward(y);
  EXPECT_EQ(tape.gradient(x).item(), 1);
}

TEST(Tape, ALongChainNeedsNoStack) {  // B11
  const auto both = [](void*) -> void* {
    for (const bool backward : {true, false}) long_chain(backward);
    return nullptr;
  };
#ifdef NDEBUG
  both(nullptr);  // the small stack is the harder case and is enough in slow builds
#endif
  pthread_attr_t small;
  pthread_attr_init(&small);
  ASSERT_EQ(pthread_attr_setstacksize(&small, 512 << 10), 0);
  pthread_t thread;
  ASSERT_EQ(pthread_create(&thread, &small, both, nullptr), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&small);
}

TEST(Tape, ASecondBackwardIsRefusedUnlessTheTapeWasKept) {
  Tape tape;
  const Tensor x = tape.watch(column({3}));
  const Tensor y = mul(x, x);
  for (int pass = 0; pass < 2; ++pass) {
    tape.backward(y, column({1}), /*keep=*/true);
    EXPECT_EQ(tape.gradient(x).item(), 6);
  }
  tape.backward(y);
  EXPECT_TRUE(has(error_of([&] { tape.backward(y); }), "keep"));
  EXPECT_TRUE(has(error_of([&] { tape.open(); }), "new one"));
}

TEST(Tape, AnInputOfAnotherTapeIsNeverASilentlyMissingGradient) {
  const Tensor value = column({1, 2});
  auto dead = std::make_unique<Tape>();
  Tape live, other(Tape::Start::closed);
  Tensor of_thread;
  std::thread([&] { of_thread = other.watch(value); }).join();
  const Tensor watched[] = {dead->watch(value), live.watch(value), of_thread, neg(live.watch(value))};
  dead.reset();
  Tape tape;
  for (const Tensor& x : watched) {
    const std::string error = error_of([&] { neg(x); });
    EXPECT_TRUE(has(error, "another tape") && has(error, "detach()") && has(error, "f64(2)")) << error;
    EXPECT_EQ(neg(x.detach()).link().tape, 0u);
  }
}

TEST(Tape, ATensorOfAFinishedTapeIsAPlainValue) {
  Tape first;
  const Tensor x = first.watch(column({1, 2}));
  const Tensor y = scale(x, 3);
  first.backward(y, column({1, 1}));
  Tape second;
  const Tensor z = second.watch(column({5, 7}));
  const Tensor product = mul(y, z);
  second.backward(product, column({1, 1}));
  expect_values(second.gradient(z), {3, 6});
  EXPECT_EQ(neg(product).link().tape, 0u);
}

TEST(Tape, TheOuterTapeWaitsWhileAnInnerOneRecords) {
  Tape outer;
  const Tensor x = outer.watch(scalar(3));
  const Tensor a = mul(x, x);
  {
    Tape inner;
    const Tensor z = inner.watch(scalar(5));
    inner.backward(mul(z, z));
    EXPECT_EQ(inner.gradient(z).item(), 10);
    EXPECT_EQ(Tape::active(), &outer);
  }
  outer.backward(mul(a, x));
  EXPECT_EQ(outer.gradient(x).item(), 27);
  EXPECT_EQ(outer.size(), 2u);
}

TEST(Tape, NothingIsRecordedWithoutAnOpenTape) {
  Parameter w{"w", column({2}), true};
  EXPECT_EQ(neg(w.value).link().tape, 0u);
  Tape tape(Tape::Start::closed);
  const Tensor x = tape.watch(column({1}));
  EXPECT_EQ(neg(x).link().tape, 0u);
  tape.open();
  EXPECT_EQ(neg(column({1})).link().tape, 0u);  // depends on no watched tensor
  EXPECT_EQ(tape.size(), 0u);
  const Tensor y = neg(x);
  tape.backward(y);
  EXPECT_EQ(Tape::active(), nullptr);
  EXPECT_EQ(neg(y).link().tape, 0u);
  EXPECT_EQ(tape.size(), 1u);
}

Tensor calls_ops_going_back(const Tensor& x) {
  return record("calls_ops", {x}, x.copy(), {x}, NoArgs{},
                [](Tensor dy, Saved& s, Sink&, NoArgs) -> Grads { return {mul(dy, s[0])}; });
}

TEST(Tape, BackwardFunctionsRecordOnNoTape) {
  Tape outer;
  const Tensor z = outer.watch(column({1}));
  Tape inner;
  const Tensor x = inner.watch(column({4}));
  inner.backward(calls_ops_going_back(x));
  EXPECT_EQ(inner.gradient(x).item(), 4);
  EXPECT_EQ(outer.size() + inner.size(), 1u);
  EXPECT_EQ(Tape::active(), &outer);
  outer.backward(neg(z));
}

TEST(Tape, AFrozenParameterCostsNothing) {
  Parameter frozen{"frozen", random_tensor({2, 2}, DType::f64), true},
      trained{"trained", random_tensor({2, 2}, DType::f64), true};
  frozen.trainable = false;
  Tape tape;
  const Tensor h = linear(random_tensor({3, 2}, DType::f64), frozen.value);
  EXPECT_EQ(tape.size(), 0u);
  EXPECT_FALSE(tape.tracks(h));
  tape.backward(sum(linear(linear(h, trained.value), frozen.value)));
  EXPECT_EQ(frozen.contributions, 0);
  EXPECT_FALSE(frozen.grad);
  EXPECT_EQ(trained.contributions, 1);
  EXPECT_EQ(relative_error(tape.gradient(frozen.value), zeros({2, 2}, DType::f64)), 0);
}

TEST(Tape, GradientsOfParametersAddUpUntilTheyAreZeroed) {
  Parameter w{"w", column({2}), true};
  for (int step = 1; step <= 2; ++step) {
    Tape tape;
    tape.backward(add(mul(w.value, w.value), scale(w.value, 10)));
    EXPECT_EQ(w.contributions, 3 * step);
    EXPECT_EQ(w.grad.item(), 14 * step);
  }
  w.zero_gradient();
  Tape tape;
  EXPECT_EQ(tape.gradient(w.value).item(), 0);
  tape.backward(scale(w.value, 10));
  EXPECT_EQ(tape.gradient(w.value).item(), 10);
}

TEST(Tape, AGradientThatWasNotKeptIsRefusedNotZero) {
  Tape tape;
  const Tensor x = tape.watch(column({1})), unused = tape.watch(column({1, 2}));
  const Tensor y = neg(x), z = neg(y);
  tape.backward(z);
  for (const Tensor& t : {y, z, column({1})})
    EXPECT_TRUE(has(error_of([&] { tape.gradient(t); }), "watch()"));
  expect_values(tape.gradient(unused), {0, 0});
}

TEST(Tape, AGradientSharesItsElementsWithNoOther) {
  Tape tape;
  const Tensor a = tape.watch(column({1, 2})), b = tape.watch(column({3, 4})), dy = column({1, 1});
  tape.backward(add(a, b), dy);
  double_in_place(tape.gradient(a));
  expect_values(tape.gradient(b), {1, 1});
  expect_values(dy, {1, 1});
}

TEST(Tape, BackwardStartsFromWhatTheTapeRecorded) {
  Tape tape;
  const Tensor x = tape.watch(column({1, 2}));
  EXPECT_TRUE(has(error_of([&] { tape.backward(neg(x)); }), "one element"));
  EXPECT_TRUE(has(error_of([&] { tape.backward(column({1})); }), "not recorded"));
  EXPECT_TRUE(has(error_of([&] { tape.backward(neg(x), column({1})); }), "f64(1)"));
  EXPECT_TRUE(has(error_of([&] { tape.watch(tensor({1}, {1}, DType::i32)); }), "floating"));
}

template <int kKind>
Tensor faulty(const Tensor& x) {
  return record("faulty", {x}, x.copy(), {}, NoArgs{}, [](Tensor dy, Saved&, Sink&, NoArgs) -> Grads {
    if (kKind == 0) return {zeros({7}, DType::f64)};
    if (kKind == 1) return {dy.to(DType::f32)};
    return {dy, dy};
  });
}

TEST(Tape, AFaultyOpOfAUserIsNamed) {
  for (auto op : {faulty<0>, faulty<1>, faulty<2>}) {
    Tape tape;
    const Tensor y = op(tape.watch(column({1, 2})));
    const std::string error = error_of([&] { tape.backward(y, column({1, 1})); });
    EXPECT_TRUE(has(error, "[faulty] backward returned")) << error;
  }
}

TEST(Tape, AnErrorLeavesTheThreadAbleToRecord) {
  for (const bool going_back : {false, true}) {
    EXPECT_NE(error_of([&] {
                Tape tape;
                const Tensor x = tape.watch(column({1, 2}));
                going_back
                    ? tape.backward(faulty<0>(x), column({1, 1})) : (void)add(neg(x), column({1, 2, 3}));
              }), "no error");
    EXPECT_EQ(Tape::active(), nullptr);
    EXPECT_EQ(derivative(3, [](const Tensor& x) { return mul(x, x); }), 6);
  }
}

TEST(Tape, WhatAGraphHoldsIsVisible) {
  Parameter w{"w", random_tensor({5, 3}, DType::f32), true};
  const std::string layer = "block.0";
  Tape tape;
  const Tensor x = tape.watch(random_tensor({2, 3}, DType::f32));
  Tensor h;
  {
    PathScope inside(layer);
    h = linear(x, w.value);
  }
  exp(x);
  tape.backward(sum(h), scalar(1).to(DType::f32), /*keep=*/true);
  const auto entries = tape.entries();
  ASSERT_EQ(entries.size(), 4u);  // linear, exp, sum and its reshape
  EXPECT_STREQ(entries[0].op, "linear");
  EXPECT_EQ(*entries[0].path, "block.0");
  EXPECT_EQ(entries[0].saved_bytes, (2 * 3 + 5 * 3) * sizeof(float));
  EXPECT_EQ(entries[0].parameters, std::vector<const Parameter*>{&w});
  EXPECT_EQ(entries[1].saved_bytes, 2 * 3 * sizeof(float));
  EXPECT_TRUE(entries[0].reached && !entries[1].reached && entries[2].reached);
}

TEST(Arena, ValuesKeepTheirBitsAndDecayedOnesComeFirst) {
  constexpr double kTiny = std::numeric_limits<float>::denorm_min(), kInf = INFINITY;
  Parameter bias{"bias", tensor({4}, {-0.0, kTiny, kInf, 1}), false},
      weight{"weight", random_tensor({3, 7}, DType::f32), true};
  Parameter frozen{"frozen", tensor({1}, {1}), true};
  frozen.trainable = false;
  const Tensor bits[] = {bias.value.copy(), weight.value.copy()};
  ParameterArena arena({&bias, &frozen, &weight});
  EXPECT_TRUE(same_bits(bias.value, bits[0]) && same_bits(weight.value, bits[1]));
  EXPECT_EQ(arena.parameters(), (std::vector<Parameter*>{&weight, &bias}));
  EXPECT_EQ(arena.elements(), 48);
  EXPECT_EQ(bias.value.parameter(), &bias);
  EXPECT_NE(frozen.value.storage(), weight.value.storage());
}

TEST(Arena, GapsStayZeroAndAnUntouchedGradientIsZero) {
  Parameter a{"a", random_tensor({3}, DType::f64), true}, b{"b", random_tensor({5}, DType::f64), true};
  Tape before;
  before.backward(sum(scale(a.value, 3)));
  ParameterArena arena({&a, &b});
  const auto expect = [&](double of_a, double of_b) {
    std::vector<double> right(32);
    std::fill_n(right.begin(), 3, of_a);
    std::fill_n(right.begin() + 16, 5, of_b);
    expect_values(arena.gradients(), right);
  };
  expect(3, 0);  // an existing gradient is moved into the arena
  Tape both;
  both.backward(add(sum(a.value), sum(b.value)));
  expect(4, 1);
  arena.zero_gradients();
  Tape only_b;
  only_b.backward(sum(scale(b.value, 2)));
  expect(0, 2);
  const auto values = arena.values().values();
  for (size_t i = 0; i < 32; ++i) EXPECT_TRUE(values[i] == 0 || i % 16 < (i < 16 ? 3u : 5u)) << i;
}

// One op has two gradients of the same tensor: the second is added to the first.
TEST(Tape, ATensorThatAnOpTakesTwiceGetsBothGradients) {
  const Tensor x = random_tensor({4, 3}, DType::f64), w = random_tensor({3}, DType::f64, 2),
      dy = random_tensor({4, 3}, DType::f64, 3);
  const Result twice =
      differentiate([&](const auto& in) { return layer_norm(x, in[0], in[0], 1e-5); }, {w}, dy);
  const Result apart =
      differentiate([&](const auto& in) { return layer_norm(x, in[0], in[1], 1e-5); }, {w, w}, dy);
  EXPECT_LE(relative_error(twice.gradients[0], add(apart.gradients[0], apart.gradients[1])), 1e-14);
}

TEST(Tape, ABackwardThatFailsCountsNoContribution) {
  Parameter w("w", random_tensor({2, 3}, DType::f64), true);
  Tensor x = random_tensor({4, 3}, DType::f64);
  {
    Tape tape;
    const Tensor y = sum(linear(x, w.value));
    x.mutable_span<double>()[0] = 5;
    EXPECT_TRUE(has(error_of([&] { tape.backward(y); }), "changed in place"));
  }
  EXPECT_EQ(w.contributions, 0);
}

TEST(Tape, AnUndefinedGradientIsRefused) {
  Tape tape;
  const Tensor y = sum(tape.watch(full({2}, 1)));
  EXPECT_TRUE(has(error_of([&] { tape.backward(y, Tensor()); }),
                  "must have the shape, dtype and device of y"));
  EXPECT_EQ(error_of([&] { tape.backward(y); }), "no error");
}

TEST(Tape, OpeningOnASecondThreadIsRefused) {
  Tape tape;
  std::string error;
  std::thread([&] { error = error_of([&] { tape.open(); }); }).join();
  EXPECT_TRUE(has(error, "another thread")) << error;
}

// This is the last test: a tape that it left open would record later ops.
TEST(TapeOrder, TapesCloseInAnyOrderButOnTheirOwnThread) {
  auto a = std::make_unique<Tape>(), b = std::make_unique<Tape>(), c = std::make_unique<Tape>();
  a->open();  // no effect, the tape is open
  a.reset();
  EXPECT_EQ(Tape::active(), c.get());
  c->close();
  EXPECT_EQ(Tape::active(), b.get());
  c->open();
  b->close();
  EXPECT_EQ(Tape::active(), c.get());
  std::string error;
  std::thread([&] { error = error_of([&] { c->close(); }); }).join();
  EXPECT_TRUE(has(error, "another thread")) << error;
  EXPECT_EQ(Tape::active(), c.get());
  c.reset();
  EXPECT_EQ(Tape::active(), nullptr);
}

}  // namespace
}  // namespace bonsai::test
