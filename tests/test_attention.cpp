// Compares the fused attention op with the composed one over sizes, heads, masks and biases. Checks which
// keys a query may see, and the memory use.
#include "bonsai/framework/core/memory.h"
#include "bonsai/framework/ops/ops.h"
#include "bonsai/tests/support.h"

namespace bonsai::test {
namespace {

struct Sizes {
  int64_t queries, keys, d_k, d_v, heads, kv_heads;
};

// The options of case n: its digits in a mixed radix choose masks, bias and so on, so that every pair of
// choices occurs in some case.
AttentionOptions options_of(int64_t n, const Sizes& s, DType dtype) {
  constexpr int64_t batch = 2;
  const auto some = [&](int64_t rows, int64_t of, uint64_t seed) {
    std::vector<double> v;
    const RandomKey key = random_key(seed, "ids");
    for (int64_t i = 0; i < batch * rows; ++i)
      v.push_back(std::floor(random_uniform(key, static_cast<uint64_t>(i)) * static_cast<double>(of)));
    return tensor({batch, rows}, v, DType::i32);
  };
  AttentionOptions o;
  o.mask.causal = n % 2 == 1;
  if (n / 2 % 3 == 1) o.mask.window = 1;
  if (n / 2 % 3 == 2) o.mask.window = 3;
  if (n / 6 % 2 == 1) o.mask.padding_mask = some(s.keys, 2, 1);
  if (n / 12 % 2 == 1)
    o.mask.query_segment_ids = some(s.queries, 2, 2), o.mask.key_segment_ids = some(s.keys, 2, 3);
  if (n / 24 % 2 == 1) o.logit_softcap = 1.2;
  if (n / 48 % 2 == 1) o.alibi = alibi_slopes(0, s.heads, s.heads, dtype);
  if (n / 96 % 2 == 1) o.dropout = 0.4, o.key = {3, 4};
  if (n % 7 > 3) o.scale = 0.4;  // 7 is coprime to the other periods
  if (n / 192 % 2 == 1) o.bias = scale(random_tensor({s.heads, s.queries, s.keys}, dtype, 5), 0.7);
  return o;
}

TEST(Attention, BothPathsAgreeOverSizesHeadsMasksAndBiases) {
  const std::vector<Sizes> all = {
      {1, 1, 1, 1, 1, 1},   {5, 5, 4, 4, 2, 2}, {3, 7, 4, 2, 4, 2}, {7, 3, 2, 5, 6, 1}, {1, 6, 3, 3, 2, 1},
      {70, 70, 4, 3, 2, 1}, {0, 4, 2, 2, 2, 1}, {4, 0, 2, 2, 2, 2}, {3, 3, 0, 2, 2, 1}, {3, 3, 2, 0, 2, 1}};
  int64_t cases = 0;
  for (const Sizes& s : all)
    for (int64_t n = 0; n<384; n += s.queries> 10 ? 7 : 1)
      for (const DType dtype : {DType::f64, DType::f32}) {
        if (dtype == DType::f32 && n % 5 != 0) continue;
        const bool columns = (n + n / 6 + n / 96) % 2 == 0;  // alternates with respect to every mask
        const auto input = [&](int64_t rows, int64_t heads, int64_t width, uint64_t seed) {
          return columns ? random_tensor({2, rows, heads * width}, dtype, seed)
                         : random_tensor({2, heads, rows, width}, dtype, seed);
        };
        AttentionOptions o = options_of(n, s, dtype);
        if (columns) o.n_heads = s.heads, o.n_kv_heads = s.kv_heads;
        std::vector<Tensor> in = {input(s.queries, s.heads, s.d_k, 1), input(s.keys, s.kv_heads, s.d_k, 2),
                                  input(s.keys, s.kv_heads, s.d_v, 3)};
        if (o.bias) in.push_back(o.bias);
        const auto by = [&](bool fused) {
          return differentiate(
              [&](const auto& x) {
                AttentionOptions with = o;
                if (o.bias) with.bias = x[3];
                return fused ? scaled_dot_product_attention(x[0], x[1], x[2], with)
                             : composed_attention(x[0], x[1], x[2], with).output;
              },
              in);
        };
        const Result fused = by(true), composed = by(false);
        const double tolerance = dtype == DType::f64 ? 1e-12 : 2e-5;
        ASSERT_LE(relative_error(fused.y, composed.y), tolerance)
            << "case " << n << ", " << s.queries << " queries, " << s.keys << " keys";
        for (size_t i = 0; i < in.size(); ++i) {
          double size = 0;
          for (const double v : composed.gradients[i].values()) size = std::max(size, std::abs(v));
          ASSERT_LE(largest(sub(fused.gradients[i], composed.gradients[i])), tolerance * std::max(size, 1.0))
              << "case " << n << " input " << i;
        }
        ++cases;
      }
  printf("%lld cases\n", static_cast<long long>(cases));
}

// The gradient of a bias is summed over the axes along which the bias is broadcast.
TEST(Attention, TheGradientOfABiasHasItsShape) {
  const Sizes s{5, 7, 4, 3, 4, 2};
  const std::vector<Shape> shapes = {{},           {1},          {7},          {5, 1},
                                     {5, 7},       {4, 1, 1},    {4, 1, 7},    {4, 5, 7},
                                     {2, 1, 1, 1}, {2, 1, 1, 7}, {1, 1, 5, 7}, {2, 1, 5, 7},
                                     {2, 4, 5, 1}, {2, 4, 1, 7}, {2, 4, 5, 7}, {1, 4, 5, 1}};
  for (const Shape& shape : shapes)
    for (int64_t n = 0; n < 192; n += 5) {
      const AttentionOptions o = options_of(n, s, DType::f64);
      const std::vector<Tensor> in = {
          random_tensor({2, 4, 5, 4}, DType::f64), random_tensor({2, 2, 7, 4}, DType::f64, 2),
          random_tensor({2, 2, 7, 3}, DType::f64, 3), random_tensor(shape, DType::f64, 4)};
      const auto by = [&](bool fused) {
        return differentiate(
            [&](const auto& x) {
              AttentionOptions with = o;
              with.bias = x[3];
              return fused ? scaled_dot_product_attention(x[0], x[1], x[2], with)
                           : composed_attention(x[0], x[1], x[2], with).output;
            },
            in);
      };
      const Result fused = by(true), composed = by(false);
      ASSERT_LE(relative_error(fused.y, composed.y), 1e-12);
      for (size_t i = 0; i < in.size(); ++i) {
        ASSERT_EQ(fused.gradients[i].shape(), in[i].shape());
        ASSERT_LE(largest(sub(fused.gradients[i], composed.gradients[i])),
                  1e-12 * std::max(largest(composed.gradients[i]), 1.0))
            << "case " << n << ", bias " << shape.str() << ", gradient " << i;
      }
    }
}

// Attention over a slice of the heads equals that slice of the whole result, dropout included.
TEST(Attention, SomeHeadsDropWhatTheWholeDrops) {
  const Tensor q = random_tensor({2, 6, 5, 4}, DType::f64), k = random_tensor({2, 3, 7, 4}, DType::f64, 2),
               v = random_tensor({2, 3, 7, 3}, DType::f64, 3);
  const AttentionOptions o{.mask = {.causal = true}, .dropout = 0.4, .key = {3, 4}};
  for (const bool fused : {true, false}) {
    const auto of = [&](int64_t first_kv, int64_t count_kv, const AttentionOptions& with) {
      const auto heads = [&](const Tensor& x, int64_t each) {
        return slice(x, 1, each * first_kv, each * (first_kv + count_kv));
      };
      return fused ? scaled_dot_product_attention(heads(q, 2), heads(k, 1), heads(v, 1), with)
                   : composed_attention(heads(q, 2), heads(k, 1), heads(v, 1), with).output;
    };
    const Tensor whole = of(0, 3, o);
    for (int64_t first = 0; first < 3; ++first) {
      AttentionOptions some = o;
      some.first_head = 2 * first, some.all_heads = 6;
      EXPECT_TRUE(same_bits(of(first, 1, some), slice(whole, 1, 2 * first, 2 * first + 2))) << first;
      some.first_head = 5;
      EXPECT_NE(error_of([&] { of(first, 1, some); }).find("2 heads from 5 on are not some of 6"),
                std::string::npos);
    }
  }
}

TEST(Attention, NumbersThatMeanNothingAreRefused) {
  const Tensor x = zeros({1, 2, 3, 4});
  const auto error = [&](const AttentionOptions& o) {
    return error_of([&] { scaled_dot_product_attention(x, x, x, o); });
  };
  const std::string op = "[scaled_dot_product_attention] ";
  EXPECT_EQ(error({.scale = NAN}),
            op + "the scale is nan and the soft cap 0; both must be finite, and the cap not negative");
  EXPECT_EQ(error({.logit_softcap = NAN}),
            op + "the scale is 0 and the soft cap nan; both must be finite, and the cap not negative");
  EXPECT_EQ(error({.mask = {.window = -1}}), op + "the window is -1; it may not be negative");
  EXPECT_EQ(error({.first_head = INT64_MAX, .all_heads = 4}),
            op + "2 heads from 9223372036854775807 on are not some of 4");
}

Tensor values_1_to(int64_t n, DType dtype) {
  std::vector<double> v;
  for (int64_t i = 1; i <= n; ++i) v.push_back(static_cast<double>(i));
  return tensor({1, 1, n, 1}, v, dtype);
}

// B01: a sliding window and padding together hide all keys from the last query.
TEST(Attention, AQueryThatMaySeeNothingGivesAndSendsBackZero) {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const bool fused : {true, false}) {
      AttentionOptions o;
      o.mask = {.causal = true, .window = 2, .padding_mask = tensor({1, 4}, {1, 1, 0, 0}, DType::i32)};
      const Tensor zero = zeros({1, 1, 4, 1}, dtype);
      const Result r = differentiate(
          [&](const auto& x) {
            return fused ? scaled_dot_product_attention(x[0], x[1], x[2], o)
                         : composed_attention(x[0], x[1], x[2], o).output;
          },
          {zero, zero, values_1_to(4, dtype)}, tensor({1, 1, 4, 1}, {1, 1, 1, 0}, dtype));
      expect_values(r.y, {1, 1.5, 2, 0});
      expect_values(r.gradients[2], {1.5, 1.5, 0, 0});
      for (const Tensor& g : {r.gradients[0], r.gradients[1]})
        for (const double v : g.values()) EXPECT_TRUE(std::isfinite(v));
    }
}

// A query that sees no key has no gradient, whatever its upstream gradient, and contributes nothing to the
// gradients of keys and values.
TEST(Attention, ABlindQuerySendsExactlyNothingBack) {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const bool fused : {true, false}) {
      AttentionOptions o;
      o.mask.padding_mask = tensor({1, 3}, {0, 0, 0}, DType::i32);
      o.logit_softcap = 2, o.alibi = alibi_slopes(0, 2, 2, dtype);
      const auto f = [&](const auto& x) {
        AttentionOptions with = o;
        with.bias = x[3];
        return fused
            ? scaled_dot_product_attention(x[0], x[1], x[2], with) : composed_attention(x[0], x[1], x[2],
                                                                                        with).output;
      };
      const std::vector<Tensor> in =
          {random_tensor({1, 2, 2, 4}, dtype), random_tensor({1, 2, 3, 4}, dtype, 2),
           random_tensor({1, 2, 3, 5}, dtype, 3),
                                      random_tensor({2, 1, 3}, dtype, 4)};
      const Result r = differentiate(f, in);
      EXPECT_EQ(largest(r.y), 0);
      for (const Tensor& g : r.gradients) EXPECT_EQ(largest(g), 0) << name_of(dtype) << " fused " << fused;
    }
}

// B03: query heads 0,1 share key/value head 0 and heads 2,3 share head 1. The gradient of a shared head is
// the sum over its query heads.
TEST(Attention, GroupedHeadsReadTheirOwnKeysAndValues) {
  for (const bool fused : {true, false})
    for (const bool columns : {true, false}) {
      const int64_t T = 3;
      const Tensor q = columns ? zeros({1, T, 4}) : zeros({1, 4, T, 1});
      const Tensor k = columns ? zeros({1, T, 2}) : zeros({1, 2, T, 1});
      const Tensor v =
          columns ? tensor({1, T, 2}, {1, 2, 1, 2, 1, 2}) : tensor({1, 2, T, 1}, {1, 1, 1, 2, 2, 2});
      AttentionOptions o;
      if (columns) o.n_heads = 4, o.n_kv_heads = 2;
      const auto f = [&](const auto& x) {
        return fused ? scaled_dot_product_attention(x[0], x[1], x[2], o)
                     : composed_attention(x[0], x[1], x[2], o).output;
      };
      const Result r = differentiate(f, {q, k, v}, full(q.shape(), 1));
      const std::vector<double> by_row = {1, 1, 2, 2, 1, 1, 2, 2, 1, 1, 2, 2},
                                by_head = {1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2};
      expect_values(r.y, columns ? by_row : by_head, 1e-6);
      expect_values(r.gradients[2], std::vector<double>(6, 2), 1e-6);
    }
  EXPECT_NE(error_of([] {
              scaled_dot_product_attention(zeros({1, 4, 2, 1}), zeros({1, 3, 2, 1}), zeros({1, 3, 2, 1}));
            }).find("do not share 3"),
            std::string::npos);
}

// With scores of zero the weights of a query are equal over the keys that its mask leaves.
TEST(Attention, MasksMeanWhatTheySay) {
  const Tensor zero = zeros({1, 1, 4, 1}), v = values_1_to(4, DType::f32);
  const auto seen = [&](const Mask& m) {
    AttentionOptions o;
    o.mask = m;
    const Tensor y = scaled_dot_product_attention(zero, zero, v, o);
    EXPECT_LE(relative_error(y, composed_attention(zero, zero, v, o).output), 1e-6);
    return y;
  };
  expect_values(seen({}), {2.5, 2.5, 2.5, 2.5}, 1e-6);
  expect_values(seen({.causal = true}), {1, 1.5, 2, 2.5}, 1e-6);
  expect_values(seen({.causal = true, .window = 2}), {1, 1.5, 2.5, 3.5}, 1e-6);
  expect_values(seen({.window = 2}), {1.5, 2, 3, 3.5}, 1e-6);
  expect_values(seen({.window = 1}), {1, 2, 3, 4}, 1e-6);
  expect_values(seen({.padding_mask = tensor({1, 4}, {0, 1, 0, 1}, DType::i32)}), {3, 3, 3, 3}, 1e-6);
  const Tensor segment_ids = tensor({1, 4}, {7, 7, 9, 9}, DType::i32);
  expect_values(seen({.causal = true, .query_segment_ids = segment_ids, .key_segment_ids = segment_ids}),
                {1, 1.5, 3, 3.5}, 1e-6);
}

TEST(Attention, AlibiFallsWithTheDistanceByItsSlope) {
  expect_values(alibi_slopes(0, 8, 8, DType::f64),
                {0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625});
  AttentionOptions o;
  o.alibi = alibi_slopes(0, 1, 1, DType::f64);  // 2^-8
  o.mask.causal = true;
  const Tensor zero = zeros({1, 1, 2, 1}, DType::f64);
  const double far = std::exp(-1.0 / 256);
  expect_values(scaled_dot_product_attention(zero, zero, values_1_to(2, DType::f64), o),
                {1, (far + 2) / (far + 1)}, 1e-12);
}

// ALiBi keeps the sign of the distance: without a causal mask, later keys get a positive bias.
TEST(Attention, AlibiTellsBeforeFromAfter) {
  AttentionOptions o;
  o.alibi = tensor({1}, {1}, DType::f64);
  const Tensor zero = zeros({1, 1, 2, 1}, DType::f64);
  const double later = std::exp(1.0);  // weight of the second key relative to the first, for both queries
  for (const Tensor& y : {scaled_dot_product_attention(zero, zero, values_1_to(2, DType::f64), o),
                          composed_attention(zero, zero, values_1_to(2, DType::f64), o).output})
    expect_values(y, std::vector<double>(2, (1 + 2 * later) / (1 + later)), 1e-12);
}

TEST(Rope, TurnsPairsByTheAngleOfTheirPosition) {
  const Tensor x = tensor({2, 4}, {1, 0, 0, 1, 1, 2, 3, 4}, DType::f64);
  const double a = std::cos(3.0), b = std::sin(3.0), c = std::cos(0.03), d = std::sin(0.03);
  const auto y = rope(x, {.first = 2, .theta = 10000, .interleaved = true}).values();
  EXPECT_NEAR(y[0], std::cos(2.0), 1e-12);
  EXPECT_NEAR(y[1], std::sin(2.0), 1e-12);
  EXPECT_NEAR(y[4], a - 2 * b, 1e-12);
  EXPECT_NEAR(y[5], 2 * a + b, 1e-12);
  EXPECT_NEAR(y[6], 3 * c - 4 * d, 1e-12);
  const auto halves = rope(x, {.first = 2}).values();
  EXPECT_NEAR(halves[4], a - 3 * b, 1e-12);
  EXPECT_NEAR(halves[6], 3 * a + b, 1e-12);
  EXPECT_NEAR(halves[5], 2 * c - 4 * d, 1e-12);
  // A score depends only on the difference of two positions.
  const Tensor q = random_tensor({1, 8}, DType::f64), k = random_tensor({1, 8}, DType::f64, 2);
  const auto score = [&](int64_t i, int64_t j) {
    return matmul(rope(q, {.first = i}), rope(k, {.first = j}), false, true).item();
  };
  EXPECT_NEAR(score(9, 4), score(105, 100), 1e-9);
  EXPECT_NE(error_of([&] { rope(zeros({3, 3})); }).find("an even width"), std::string::npos);
}

// The angles are cached between calls, for a few settings and up to a position.
TEST(Rope, KeptAnglesAreThoseThatWereAskedFor) {
  for (int repeat = 0; repeat < 2; ++repeat)
    for (const double theta : {10.0, 100.0, 1e4})
      for (const int64_t width : {2, 6})
        for (const DType dtype : {DType::f32, DType::f64})
          for (const int64_t first : {0, 7, 1, -3, 65534, 1 << 20}) {
            std::vector<double> expected;
            for (int64_t t = first; t < first + 3; ++t)
              for (int64_t j = 0; j < width / 2; ++j) {
                const double angle =
                    static_cast<double>(t) * std::pow(theta,
                        -2.0 * static_cast<double>(j) / static_cast<double>(width));
                expected.push_back(std::cos(angle) - std::sin(angle));
                expected.push_back(std::cos(angle) + std::sin(angle));
              }
            expect_values(rope(full({3, width}, 1, dtype),
                               {.first = first, .theta = theta, .interleaved = true}), expected,
                          dtype == DType::f64 ? 1e-14 : 1e-6);
          }
}

// Peak memory of forward and backward without operands and results, relative to one (T,T) table.
double share_of_a_table(const std::vector<Tensor>& inputs, const AttentionOptions& o) {
  Tape tape;
  const std::vector<Tensor> in = watch_all(tape, inputs);
  const int64_t T = in[0].size(2);
  Pool& memory = pool({});
  const int64_t start = memory.statistics().in_use;
  AttentionOptions with = o;
  if (in.size() > 3) with.bias = in[3];
  const Tensor y = scaled_dot_product_attention(in[0], in[1], in[2], with);
  tape.backward(y, random_tensor(y.shape(), DType::f32, 4));
  int64_t results = 2 * y.elements();  // y, dy and the gradients
  for (const Tensor& x : in) results += x.elements();
  const int64_t extra = memory.statistics().peak - start - results * 4;
  printf("%.2f MiB beside operands and results\n", static_cast<double>(extra) / 1048576);
  return static_cast<double>(extra) / static_cast<double>(T * T * 4);
}

// No (Tq,Tk) tensor is allocated, whatever the options.
TEST(Attention, ALongSequenceTakesNoTableOfScores) {
  const Threads two(2);
  constexpr int64_t T = 4096;
  const auto heads = [](int64_t n, uint64_t seed) { return random_tensor({1, n, T, 8}, DType::f32, seed); };
  EXPECT_LT(
      share_of_a_table({heads(1, 1), heads(1, 2), heads(1, 3)},
                       {.mask = {.causal = true}, .logit_softcap = 20}),
      0.1);
  std::vector<double> padding_mask, segment_ids;
  for (int64_t t = 0; t < T; ++t)
    padding_mask.push_back(t % 7 > 0), segment_ids.push_back(static_cast<double>(t / 1500));
  AttentionOptions o;
  o.mask.causal = true;
  o.mask.padding_mask = tensor({1, T}, padding_mask, DType::i32);
  o.mask.query_segment_ids = o.mask.key_segment_ids = tensor({1, T}, segment_ids, DType::i32);
  o.logit_softcap = 20, o.alibi = alibi_slopes(0, 4, 4, DType::f32), o.dropout = 0.1, o.key = {3, 4};
  EXPECT_LT(share_of_a_table({heads(4, 1), heads(2, 2), heads(2, 3), random_tensor({T}, DType::f32, 5)}, o),
            0.1);
  o.dropout = 0;
  EXPECT_LT(share_of_a_table({heads(2, 1), heads(2, 2), heads(2, 3), random_tensor({T, 1}, DType::f32, 5)},
                             {.mask = o.mask, .logit_softcap = 20,
                              .alibi = alibi_slopes(0, 2, 2, DType::f32)}),
            0.1);
}

}  // namespace
}  // namespace bonsai::test
