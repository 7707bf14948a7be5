// Bonsai's micro-kernels of every tile size, including those of other processors. The operands are integers,
// so that sums are exact in any order. Their buffers end with the last element.
#define BONSAI_LEVEL tested
#define BONSAI_REAL float
#include "bonsai/framework/backend/cpu/product.cpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

namespace bonsai::cpu::tested {
namespace {

struct Operand {
  int64_t ld;
  std::vector<float> v;
  Operand(int64_t rows, int64_t columns, int64_t padding) : ld(columns + padding) {
    v.resize(rows == 0 || columns == 0 ? 0 : static_cast<size_t>((rows - 1) * ld + columns));
    for (float& x : v) x = static_cast<float>(std::rand() % 7 - 3);
  }
};

// Bits of `form`: A is transposed, B is transposed, the product is added to C. Every second case has a bias.
void check_product(int64_t m, int64_t n, int64_t k, int form, int64_t apart = 0) {
  const bool ta = form & 1, tb = form & 2, add = form & 4;
  const Operand a(ta ? k : m, ta ? m : k, form % 3 + apart), b(tb ? n : k, tb ? k : n, form % 2),
      c(m, n, form % 4),
      bias(1, form % 2 ? n : 0, 0);
  std::vector<float> right = c.v;
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      float sum = 0;
      for (int64_t p = 0; p < k; ++p)
        sum += (ta ? a.v[p * a.ld + i] : a.v[i * a.ld + p]) * (tb ? b.v[j * b.ld + p] : b.v[p * b.ld + j]);
      float& out = right[i * c.ld + j];
      out = (add ? out : 0) + 2 * sum + (form % 2 ? bias.v[j] : 0);
    }
  std::vector<float> once = c.v, parts = c.v;
  Product p{m,          n,    k,  a.v.data(),  a.ld, ta,
            b.v.data(), b.ld, tb, once.data(), c.ld, form % 2 ? bias.v.data() : nullptr};
  own_product(p, 2, add);
  EXPECT_EQ(once, right) << m << " x " << n << " x " << k << " form " << form;
  p.c = parts.data();
  std::vector<float> packed(static_cast<size_t>(packed_elements(k, n)));
  pack(p, packed.data());
  const int64_t middle = n / 2 / kNR * kNR;
  own_product(p, 2, add, packed.data(), 0, middle);
  own_product(p, 2, add, packed.data(), middle, n);
  EXPECT_EQ(parts, right) << m << " x " << n << " x " << k << " form " << form << ", packed";
  if (ta) return;
  std::vector<float> rows = c.v;
  p.c = rows.data();
  gemv(p, 2, add);
  EXPECT_EQ(rows, right) << m << " x " << n << " x " << k << " form " << form << ", by rows";
}

TEST(Product, EverySizeAroundATilesEdgeIsRight) {
  const std::vector<int64_t> sizes = {0, 1, 5, 6, 7, 12, 13, 16, 17, 32, 33, 48, 49, 63, 65, 97, 129},
                             depths = {0, 1, 7, 8, 31, 256, 257, 300};
  for (const int64_t m : sizes)
    for (const int64_t n : sizes)
      for (const int64_t k : depths)
        if (m * n * k < 300000 || (m + n + k) % 7 == 0)
          for (int form = 0; form < 8; ++form) check_product(m, n, k, form);
  for (const int64_t m : sizes)  // a large distance between rows of A
    for (const int64_t k : depths)
      for (int form = 0; form < 8; ++form) check_product(m, 17, k, form, kNear);
}

// Outside its band A is zero and C is not compared.
TEST(Product, OfABandThePartThatIsWantedIsRight) {
  constexpr int64_t kFar = int64_t{1} << 40;
  const auto in = [](const Band& band, int64_t row, int64_t column) {
    return column >= row + band.begin && column < row + band.end;
  };
  for (const int64_t m : {1, 13, 64})
    for (const int64_t n : {1, 16, 47, 161})
      for (const int64_t k : {1, 24, 64, 300})
        for (const auto& [begin, end] : {Range{-kFar, 1}, {-3, 1}, {-20, 21}, {5, kFar}, {40, 47},
                                         {-300, -250}, {0, 0}})
          for (int form = 0; form < 8; ++form) {
            const bool ta = form & 1, tb = form & 2, add = form & 4;
            const int64_t apart = form % 3 == 0 ? kNear : 0;
            Operand a(ta ? k : m, ta ? m : k, apart);
            const Operand b(tb ? n : k, tb ? k : n, 0), c(m, n, 3);
            std::vector<float> whole = c.v, part = c.v;
            Product p{m, n, k, a.v.data(), a.ld, ta, b.v.data(), b.ld, tb, whole.data(), c.ld};
            own_product(p, 1, add);
            p.c = part.data(), p.band = {Band::c, begin, end};
            own_product(p, 1, add);
            for (int64_t i = 0; i < m; ++i)
              for (int64_t j = 0; j < n; ++j)
                if (in(p.band, i, j)) {
                  EXPECT_EQ(part[i * c.ld + j], whole[i * c.ld + j]) << m << " x " << n << " x " << k
                      << " form " << form;
                }

            p.band.of = Band::a;
            for (int64_t i = 0; i < (ta ? k : m); ++i)
              for (int64_t j = 0; j < (ta ? m : k); ++j)
                if (!in(p.band, i, j)) a.v[i * a.ld + j] = 0;
            part = whole = c.v;
            own_product(p, 1, add);
            p.c = whole.data(), p.band = {};
            own_product(p, 1, add);
            EXPECT_EQ(part, whole) << m << " x " << n << " x " << k << " form " << form;
          }
}

}  // namespace
}  // namespace bonsai::cpu::tested
