// All numbers of a transformer pass through matrix products: a wrong tile, an uninitialised buffer or a
// library that is not thread-safe would corrupt all of them. ctest runs this file twice, the second time with
// BONSAI_BLAS=own, without OpenBLAS.
#include <limits>
#include <thread>

#include "bonsai/framework/autograd/dispatch.h"
#include "bonsai/framework/backend/cpu/gemm.h"
#include "bonsai/framework/core/parallel.h"
#include "bonsai/framework/ops/ops.h"
#include "bonsai/tests/support.h"

namespace bonsai::test {
namespace {

constexpr DType kFloating[] = {DType::f32, DType::f64};
constexpr bool kBoth[] = {false, true};
constexpr double kNan = NAN, kInf = INFINITY;

bool chose_own() { return std::getenv("BONSAI_BLAS") && std::string(std::getenv("BONSAI_BLAS")) == "own"; }

TEST(Gemm, TheBlasThatWasAskedForRuns) { EXPECT_EQ(cpu::use_own_blas(), chose_own()) << cpu_info().blas; }

// ---- The reference: three loops in double.

struct Matrix {
  int64_t rows, columns;
  std::vector<double> v;

  static Matrix random(int64_t rows, int64_t columns, uint64_t seed) {
    return {rows, columns, random_tensor({rows, columns}, DType::f64, seed).values()};
  }
  Matrix turned() const {
    Matrix t{columns, rows, {}};
    for (int64_t j = 0; j < columns; ++j)
      for (int64_t i = 0; i < rows; ++i) t.v.push_back(v[static_cast<size_t>(i * columns + j)]);
    return t;
  }
  Tensor tensor(DType dtype = DType::f64, bool transposed = false) const {
    return transposed ? turned().tensor(dtype) : bonsai::tensor({rows, columns}, v, dtype);
  }
};

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix c{a.rows, b.columns, std::vector<double>(static_cast<size_t>(a.rows * b.columns))};
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t k = 0; k < a.columns; ++k) {
      const double x = a.v.data()[i * a.columns + k], *from = b.v.data() + k * b.columns;
      double* to = c.v.data() + i * b.columns;
      for (int64_t j = 0; j < b.columns; ++j) to[j] += x * from[j];
    }
  return c;
}

void expect_close(const Tensor& got, const Tensor& right, const std::string& what) {
  EXPECT_LE(relative_error(got, right), got.dtype() == DType::f32 ? 2e-6 : 1e-14) << what << " "
      << got.describe();
}

// Checks both dtypes, with each operand stored transposed and not.
void check_matmul(int64_t m, int64_t k, int64_t n) {
  const Matrix a = Matrix::random(m, k, 1), b = Matrix::random(k, n, 2), d = Matrix::random(m, n, 3);
  const Matrix y = product(a, b), da = product(d, b.turned()), db = product(a.turned(), d);
  for (const DType dtype : kFloating)
    for (bool ta : kBoth)
      for (bool tb : kBoth) {
        const Result r =
            differentiate([&](const std::vector<Tensor>& in) { return matmul(in[0], in[1], ta, tb); },
                                       {a.tensor(dtype, ta), b.tensor(dtype, tb)}, d.tensor(dtype));
        const std::string what =
            fmt::format("matmul {}x{}x{}{}{}", m, k, n, ta ? " ta" : "", tb ? " tb" : "");
        expect_close(r.y, y.tensor(), what);
        expect_close(r.gradients[0], da.tensor(DType::f64, ta), what + " da");
        expect_close(r.gradients[1], db.tensor(DType::f64, tb), what + " db");
      }
}

// Checks with and without a bias; x is (rows..., k).
void check_linear(const Shape& rows, int64_t k, int64_t n) {
  const Matrix x = Matrix::random(rows.elements(), k, 1), w = Matrix::random(n, k, 2),
      b = Matrix::random(1, n, 3);
  const Matrix d = Matrix::random(x.rows, n, 4),
      ones{1, x.rows, std::vector<double>(static_cast<size_t>(x.rows), 1)};
  const Matrix y = product(x, w.turned()), dx = product(d, w), dw = product(d.turned(), x),
      db = product(ones, d);
  Shape in = rows, out = rows;
  in.dim[in.rank++] = k, out.dim[out.rank++] = n;
  for (const DType dtype : kFloating)
    for (bool biased : kBoth) {
      const Tensor bias = biased ? reshape(b.tensor(dtype), {n}) : Tensor();
      const Result r = differentiate([](const std::vector<Tensor>& t) { return linear(t[0], t[1], t[2]); },
                                     {reshape(x.tensor(dtype), in), w.tensor(dtype), bias},
                                     reshape(d.tensor(dtype), out));
      const std::string what = "linear " + in.str() + (biased ? " with bias" : "");
      expect_close(r.y, reshape(biased ? add(y.tensor(), b.tensor()) : y.tensor(), out), what);
      expect_close(r.gradients[0], reshape(dx.tensor(), in), what + " dx");
      expect_close(r.gradients[1], dw.tensor(), what + " dw");
      if (biased) expect_close(r.gradients[2], reshape(db.tensor(), {n}), what + " db");
    }
}

TEST(Gemm, SmallAndEmptySizesGiveTheRightProductsAndGradients) {  // B36
  const int64_t sizes[] = {0, 1, 2, 5};
  for (int64_t m : sizes)
    for (int64_t k : sizes)
      for (int64_t n : sizes) {
        check_matmul(m, k, n);
        for (const Shape& rows : {Shape{m}, Shape{2, m}, Shape{m, 2}}) check_linear(rows, k, n);
      }
  check_matmul(3, 0, 2);
  check_matmul(0, 4, 5);
  check_linear({}, 3, 2);
}

// Sizes for row tiles, column tiles, split-K with and without tiles, few rows in one and in several column
// parts, and the edges of each.
TEST(Gemm, EveryWayOfCuttingGivesTheRightProductsAndGradients) {
  const struct {
    int64_t m, k, n;
  } sizes[] =
      {{97, 40, 31},  {193, 64, 50},  {145, 17, 145}, {40, 64, 193}, {31, 8, 300},  {900, 10, 7},
       {7, 10, 900},
               {33, 289, 40}, {33, 288, 40},  {5, 1000, 5},   {130, 500, 9}, {9, 500, 130}, {1, 300, 130},
               {4, 513, 200},
               {3, 7, 700},   {2, 1500, 70},  {64, 64, 64},   {96, 192, 96}};
  for (const auto& s : sizes) {
    check_matmul(s.m, s.k, s.n);
    check_linear({s.m}, s.k, s.n);
  }
}

// ---- Batches, compared with products of one matrix at a time.

Tensor matrix_at(const Tensor& x, const Shape& batch, int64_t flat) {
  int64_t at = 0, step = x.size(-1) * x.size(-2);
  for (int i = 1; i <= batch.rank; ++i) {
    const int64_t index = flat % batch[-i];
    flat /= batch[-i];
    if (i > x.rank() - 2) continue;
    if (x.size(-2 - i) != 1) at += index * step;
    step *= x.size(-2 - i);
  }
  return x.alias({x.size(-2), x.size(-1)}, at);
}

void add_to(const Tensor& part, Tensor whole) { kernels(part).accumulate(view(part), mut(whole)); }

TEST(Gemm, BroadcastBatchesSumTheGradientsOfWhatIsStretched) {
  const struct {
    Shape a, b;  // the batch axes
  } rows[] = {{{3}, {3}},       {{}, {4}},          {{4}, {}},          {{2, 1}, {1, 3}},       {{2, 3}, {3}},
              {{3}, {2, 3}},    {{2, 3}, {}},       {{1}, {5}},         {{2, 3}, {2, 1}},       {{0}, {}},
              {{}, {0}},        {{2, 0}, {1, 0}},   {{2, 1, 2}, {3, 1}}, {{2, 2, 2, 2}, {2, 1, 2}},
              {{2, 2, 1, 2}, {2, 1}}};
  const struct {
    int64_t m, k, n;
  } sizes[] = {{3, 4, 5}, {4, 4, 4}, {130, 20, 9}, {3, 300, 40}, {2, 0, 3}};
  for (const auto& row : rows)
    for (const auto& s : sizes)
      for (bool ta : kBoth)
        for (bool tb : kBoth) {
          Shape sa = row.a, sb = row.b;
          for (int64_t size : {ta ? s.k : s.m, ta ? s.m : s.k}) sa.dim[sa.rank++] = size;
          for (int64_t size : {tb ? s.n : s.k, tb ? s.k : s.n}) sb.dim[sb.rank++] = size;
          const Tensor a = random_tensor(sa, DType::f64, 1), b = random_tensor(sb, DType::f64, 2);
          const auto call = [&](const std::vector<Tensor>& in) { return matmul(in[0], in[1], ta, tb); };
          const Result r = differentiate(call, {a, b});
          Shape batch = broadcast("test", row.a, row.b);
          const Tensor dy = random_tensor(r.y.shape(), DType::f64, 99);
          Tensor da = zeros(sa, DType::f64), db = zeros(sb, DType::f64);
          const std::string what = sa.str() + " " + sb.str();
          for (int64_t i = 0; i < batch.elements(); ++i) {
            const Result one =
                differentiate(call, {matrix_at(a, batch, i), matrix_at(b, batch, i)},
                              matrix_at(dy, batch, i));
            expect_close(matrix_at(r.y, batch, i), one.y, what);
            add_to(one.gradients[0], matrix_at(da, batch, i));
            add_to(one.gradients[1], matrix_at(db, batch, i));
          }
          expect_close(r.gradients[0], da, what + " da");
          expect_close(r.gradients[1], db, what + " db");
        }
}

// ---- B37: the kernel itself, with results that are not initially 0.

// Computes the first m rows of B as C = I B or C += I B with I (m, k), each operand stored transposed or not.
Tensor times_identity(int64_t m, const Tensor& b, bool ta, bool tb, Tensor c, bool add,
                      const Tensor& bias = {}) {
  const int64_t k = b.size(0), n = b.size(1);
  Matrix identity{m, k, std::vector<double>(static_cast<size_t>(m * k))};
  for (int64_t i = 0; i < m; ++i) identity.v[static_cast<size_t>(i * k + i)] = 1;
  const Tensor left = identity.tensor(b.dtype(), ta), right = tb ? permute(b, {1, 0}) : b;
  kernel::Gemm g{};
  g.m = m, g.n = n, g.k = k;
  g.a = {left.data(), left.size(1), ta, {}}, g.b = {right.data(), right.size(1), tb, {}};
  g.c = c.mutable_data(), g.ldc = n, g.add = add, g.bias = view(bias).data;
  kernels(b).gemm(g);
  return c;
}

TEST(Gemm, OldContentOfAResultNeverShows) {
  const struct {
    int64_t m, k;
  // The last size is split along k.
  } sizes[] = {{1, 1}, {2, 2}, {3, 3}, {4, 4}, {17, 17}, {64, 64}, {100, 100}, {4, 300}, {5, 300}};
  for (const DType dtype : kFloating)
    for (const auto& [m, k] : sizes) {
      const Tensor b = random_tensor({k, k}, dtype), rows = slice(b, 0, 0, m), bias = full({k}, 8, dtype);
      const Tensor sum = add(rows, full({}, 5, dtype)), biased = add(rows, bias);
      for (bool ta : kBoth)
        for (bool tb : kBoth) {
          for (const double old : {kNan, kInf, -kInf}) {
            EXPECT_TRUE(same_bits(times_identity(m, b, ta, tb, full({m, k}, old, dtype), false), rows)) << m
                << " over " << old;
            EXPECT_TRUE(same_bits(times_identity(m, b, ta, tb, full({m, k}, old, dtype), false, bias),
                                  biased)) << m;
          }
          EXPECT_TRUE(same_bits(times_identity(m, b, ta, tb, full({m, k}, 5, dtype), true), sum)) << m;
        }
    }
}

template <class T>
void multiply_directly(int64_t n, DType dtype) {
  const Tensor b = random_tensor({n, n}, dtype), turned = permute(b, {1, 0});
  std::vector<T> identity(static_cast<size_t>(n * n));
  for (size_t i = 0; i < static_cast<size_t>(n); ++i) identity[i * static_cast<size_t>(n) + i] = 1;
  const auto multiply =
      static_cast<void (*)(int64_t, int64_t, int64_t, T, const T*, int64_t, bool, const T*, int64_t, bool, T,
                           T*, int64_t)>(cpu::multiply);
  for (const auto run : {multiply, static_cast<decltype(multiply)>(cpu::own_multiply<T>)})
    for (bool ta : kBoth)
      for (bool tb : kBoth)
        for (const double old : {kNan, kInf, 2.0}) {
          const bool adds = old == 2;
          Tensor c = full({n, n}, old, dtype);
          const T* second = (tb ? turned : b).template span<T>().data();
          run(n, n, n, T(1), identity.data(), n, ta, second, n, tb, T(adds), c.mutable_span<T>().data(), n);
          EXPECT_TRUE(same_bits(c, adds ? add(b, full({}, 2, dtype)) : b)) << n << " over " << old;
        }
}

TEST(Gemm, OldContentNeverShowsInTheLibraryOrInOurLoops) {
  for (const int64_t n : {1, 3, 17, 64}) {
    multiply_directly<float>(n, DType::f32);
    multiply_directly<double>(n, DType::f64);
  }
}

// A second gradient of a weight is added to the first with beta = 1.
TEST(Gemm, AWeightUsedTwiceGetsItsGradientAddedExactlyOnceMore) {
  for (const Shape& shape : {Shape{3, 2}, Shape{130, 70}, Shape{40, 700}, Shape{0, 5}}) {
    const Tensor x = full(shape, 1, DType::f64), w = full({4, shape[-1]}, 1, DType::f64);
    const Result r =
        differentiate([](const std::vector<Tensor>& in) { return add(linear(in[0], in[1]),
                                                                     linear(in[0], in[1])); },
                                   {x, w}, full({shape[0], 4}, 1, DType::f64));
    EXPECT_EQ(relative_error(r.gradients[1],
                             full(w.shape(), 2.0 * static_cast<double>(shape[0]), DType::f64)), 0)
                             << shape.str();
  }
}

TEST(Gemm, SizesThatDoNotFitAreRefusedEvenWhenEmpty) {  // B36
  const auto error = [](const Shape& a, const Shape& b, bool ta = false) {
    return error_of([&] { matmul(zeros(a), zeros(b), ta); });
  };
  EXPECT_EQ(error({3, 0}, {1, 2}), "[matmul] inner sizes differ: f32(3,0) and f32(1,2)");
  EXPECT_EQ(error({0, 3}, {1, 2}, true), "[matmul] inner sizes differ: f32(0,3) transposed and f32(1,2)");
  EXPECT_NE(error({2, 3, 4}, {3, 4, 5}).find("do not broadcast: (2) and (3)"), std::string::npos);
  EXPECT_NE(error({3}, {3, 1}).find("a must be (...,rows,columns), got f32(3)"), std::string::npos);
  Parameter w{"query.weight", zeros({4, 5}), true};
  EXPECT_EQ(error_of([&] { linear(zeros({2, 0}), w.value); }),
            "[linear] inner sizes differ: x f32(2,0), query.weight f32(4,5)");
  EXPECT_NE(error_of([&] { linear(zeros({2, 5}), w.value, zeros({5})); }).find("bias"), std::string::npos);
}

// The other ops that see an empty batch, an empty sequence or an empty row.
TEST(Empty, EveryOpOfABlockTakesAnEmptyBatch) {  // B36
  for (const Shape& shape : {Shape{0, 3, 4}, Shape{2, 0, 4}}) {
    const auto block = [&](const std::vector<Tensor>& in) {
      const Tensor h = layer_norm(rms_norm(in[0], in[1], 1e-6), in[1], in[2], 1e-5);
      const Tensor y = scaled_dot_product_attention(h, h, gelu(h), {.n_heads = 2, .mask = {.causal = true}});
      return cross_entropy(add(y, softmax(h)), zeros({shape[0], shape[1]}, DType::i32));
    };
    const Result r = differentiate(block, {zeros(shape), full({4}, 1), zeros({4})});
    EXPECT_EQ(r.y.item(), 0);
    EXPECT_EQ(r.gradients[0].shape(), shape);
    for (size_t i : {1, 2}) expect_values(r.gradients[i], {0, 0, 0, 0});
  }
  for (const Shape& shape : {Shape{0}, Shape{0, 3}, Shape{3, 0}}) {
    EXPECT_EQ(sum(zeros(shape)).item(), 0);
    EXPECT_NE(error_of([&] { mean(zeros(shape)); }).find("[mean]"), std::string::npos);
    const int axis = shape[-1] == 0 ? -1 : 0;
    EXPECT_NE(error_of([&] { max(zeros(shape), axis); }).find("[max]"), std::string::npos);
    EXPECT_NE(error_of([&] { mean(zeros(shape), axis); }).find("not defined"), std::string::npos);
  }
  EXPECT_EQ(max(zeros({0, 3}), 1).shape(), (Shape{0}));
}

TEST(Gemm, ProductsOfTwoThreadsAtOnceAreThoseOfOne) {  // B35
  for (const Shape& size : {Shape{24, 40, 16}, Shape{100, 300, 20}}) {
    const int rounds = size[0] < 50 ? 1000 : 40;
    const Tensor a = random_tensor({size[0], size[1]}, DType::f32, 1),
        b = random_tensor({size[1], size[2]}, DType::f32, 2);
    const Tensor right = matmul(a, b);
    int wrong[2] = {};
    const auto work = [&](int& count) {
      for (int i = 0; i < rounds; ++i) count += !same_bits(matmul(a, b), right);
    };
    std::thread other(work, std::ref(wrong[0]));
    work(wrong[1]);
    other.join();
    EXPECT_EQ(wrong[0] + wrong[1], 0);
  }
}

}  // namespace
}  // namespace bonsai::test
