// A BLAS that gives wrong results on this processor would silently corrupt every number. The self-check must
// find planted faults, and the program must report and bypass them.
#include "bonsai/framework/backend/cpu/blas.h"

#include "bonsai/framework/backend/cpu/gemm.h"
#include "bonsai/framework/ops/ops.h"
#include "bonsai/tests/support.h"

namespace bonsai::test {
namespace {

using cpu::Blas;

template <class T>
cpu::Multiply<T> right() {
  static const Blas blas = cpu::openblas();
  if constexpr (sizeof(T) == 4)
    return blas.f32;
  else
    return blas.f64;
}

// Computes the right product, then falsifies it if kWhere holds.
template <class T, bool (*kWhere)(int64_t m, int64_t n, int64_t k, bool ta, bool tb)>
void wrong_matrix(int64_t m, int64_t n, int64_t k, T alpha, const T* a, int64_t lda, bool ta, const T* b,
                  int64_t ldb, bool tb, T beta, T* c, int64_t ldc) {
  right<T>()(m, n, k, alpha, a, lda, ta, b, ldb, tb, beta, c, ldc);
  if (m > 0 && n > 0 && kWhere(m, n, k, ta, tb)) c[(m - 1) * ldc + n - 1] += 1;
}
template <class T>
void reads_what_it_should_not(int64_t m, int64_t n, int64_t k, T alpha, const T* a, int64_t lda, bool ta,
                              const T* b, int64_t ldb, bool tb, T, T* c, int64_t ldc) {
  right<T>()(m, n, k, alpha, a, lda, ta, b, ldb, tb, T(1), c, ldc);
}
template <class T>
void forgets_to_add(int64_t m, int64_t n, int64_t k, T alpha, const T* a, int64_t lda, bool ta, const T* b,
                    int64_t ldb, bool tb, T, T* c, int64_t ldc) {
  right<T>()(m, n, k, alpha, a, lda, ta, b, ldb, tb, T(0), c, ldc);
}
template <class T>
void forgets_the_factor(int64_t m, int64_t n, int64_t k, T, const T* a, int64_t lda, bool ta, const T* b,
                        int64_t ldb, bool tb, T beta, T* c, int64_t ldc) {
  right<T>()(m, n, k, T(1), a, lda, ta, b, ldb, tb, beta, c, ldc);
}

bool always(int64_t, int64_t, int64_t, bool, bool) { return true; }
bool at_odd_edges(int64_t, int64_t n, int64_t, bool, bool) { return n % 4 != 0; }
bool where_large(int64_t m, int64_t n, int64_t k, bool, bool) { return m * n * k > 1000000; }
bool where_small(int64_t m, int64_t n, int64_t k, bool, bool) { return m * n * k <= 1000000; }
template <bool kA, bool kB>
bool where_stored(int64_t, int64_t, int64_t, bool ta, bool tb) {
  return ta == kA && tb == kB;
}

template <class T>
std::vector<Blas> faults_of() {
  const cpu::Multiply<T> faults[] = {wrong_matrix<T, always>,
                                     wrong_matrix<T, at_odd_edges>,
                                     wrong_matrix<T, where_large>,
                                     wrong_matrix<T, where_small>,
                                     wrong_matrix<T, where_stored<false, false>>,
                                     wrong_matrix<T, where_stored<false, true>>,
                                     wrong_matrix<T, where_stored<true, false>>,
                                     wrong_matrix<T, where_stored<true, true>>,
                                     reads_what_it_should_not<T>,
                                     forgets_to_add<T>,
                                     forgets_the_factor<T>};
  std::vector<Blas> all;
  for (const cpu::Multiply<T> f : faults) {
    Blas blas = cpu::openblas();
    if constexpr (sizeof(T) == 4)
      blas.f32 = f;
    else
      blas.f64 = f;
    blas.name = fmt::format("planted fault {}", all.size());
    all.push_back(blas);
  }
  return all;
}

// One product of each kind that layers need: large, small, and with one row.
std::vector<Tensor> some_products(DType dtype) {
  const Tensor x = random_tensor({130, 300}, dtype, 1), w = random_tensor({70, 300}, dtype, 2);
  const Tensor row = random_tensor({1, 300}, dtype, 3), small = random_tensor({5, 7}, dtype, 4);
  const Result r = differentiate([](const std::vector<Tensor>& in) { return linear(in[0], in[1]); }, {x, w});
  return {r.y, r.gradients[0], r.gradients[1], linear(row, w), matmul(small, small, true)};
}

TEST(Blas, TheLibraryOfThisMachineIsRightAndNothingIsSaid) {
  EXPECT_TRUE(cpu::is_right(cpu::openblas()));
  EXPECT_TRUE(cpu::is_right(cpu::own_blas()));
  ::testing::internal::CaptureStderr();
  const cpu::ScopedBlas found(cpu::openblas());
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  EXPECT_FALSE(cpu::use_own_blas());
}

TEST(Blas, EveryPlantedFaultIsFoundSaidOnceAndWorkedAround) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const std::vector<Tensor> expected = some_products(dtype);
    for (const Blas& fault : dtype == DType::f32 ? faults_of<float>() : faults_of<double>()) {
      ::testing::internal::CaptureStderr();
      const cpu::ScopedBlas found(fault);
      const std::vector<Tensor> got = some_products(dtype);
      const std::string said = ::testing::internal::GetCapturedStderr();
      EXPECT_TRUE(cpu::use_own_blas()) << fault.name << " " << name_of(dtype);
      EXPECT_NE(std::string(cpu::blas_description()).find(fault.name + " failed its self-check"),
                std::string::npos);
      EXPECT_EQ(said.find("[backend] " + fault.name + " gives wrong products on this processor"), 0u) << said;
      EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
      for (size_t i = 0; i < got.size(); ++i)
        EXPECT_LE(relative_error(got[i], expected[i]), dtype == DType::f32 ? 2e-6 : 1e-14)
            << fault.name << " " << i;
    }
  }
}

}  // namespace
}  // namespace bonsai::test
