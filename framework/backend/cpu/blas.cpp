// The calls into OpenBLAS, the self-check, and the plain loops that compute its reference results.
#include "bonsai/framework/backend/cpu/blas.h"

#include <cblas.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <vector>

#include "bonsai/framework/backend/cpu/gemm.h"
#include "bonsai/framework/core/error.h"
#include "bonsai/framework/core/parallel.h"

namespace bonsai::cpu {
namespace {

CBLAS_TRANSPOSE transposed(bool yes) { return yes ? CblasTrans : CblasNoTrans; }
int narrow(int64_t n) { return static_cast<int>(n); }
// BLAS rejects a leading dimension of 0, which an empty operand may have.
int leading(int64_t n) { return static_cast<int>(std::max<int64_t>(1, n)); }

void sgemm(int64_t m, int64_t n, int64_t k, float alpha, const float* a, int64_t lda, bool ta, const float* b,
           int64_t ldb, bool tb, float beta, float* c, int64_t ldc) {
  cblas_sgemm(CblasRowMajor, transposed(ta), transposed(tb), narrow(m), narrow(n), narrow(k), alpha, a,
              leading(lda), b, leading(ldb), beta, c, leading(ldc));
}
void dgemm(int64_t m, int64_t n, int64_t k, double alpha, const double* a, int64_t lda, bool ta,
           const double* b, int64_t ldb, bool tb, double beta, double* c, int64_t ldc) {
  cblas_dgemm(CblasRowMajor, transposed(ta), transposed(tb), narrow(m), narrow(n), narrow(k), alpha, a,
              leading(lda), b, leading(ldb), beta, c, leading(ldc));
}

// A matrix of small integers, whose sums are exact in any order. It is stored with padding at the end of each
// row.
struct Sample {
  int64_t rows, columns;
  std::vector<double> values;  // row-major

  Sample(int64_t rows, int64_t columns, uint32_t seed)
      : rows(rows), columns(columns), values(static_cast<size_t>(rows * columns)) {
    for (double& v : values) {
      seed = seed * 1664525 + 1013904223;
      v = static_cast<double>((seed >> 16) % 11) - 5;
    }
  }
  static constexpr int64_t kPadding = 3;
  int64_t ld(bool turned) const { return (turned ? rows : columns) + kPadding; }
  template <class T>
  std::vector<T> stored(bool turned) const {
    std::vector<T> out(static_cast<size_t>((turned ? columns : rows) * ld(turned)),
                       std::numeric_limits<T>::quiet_NaN());
    const int64_t down = turned ? 1 : ld(false), along = turned ? ld(true) : 1;
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j)
        out.data()[i * down + j * along] = static_cast<T>(values.data()[i * columns + j]);
    return out;
  }
};

// One product, to be computed with each operand transposed or not, in both types.
class Trial {
 public:
  Trial(int64_t m, int64_t n, int64_t k, int passes)
      : m_(m), n_(n), k_(k), passes_(passes), a_(m, k, 1), b_(k, n, 2), right_(static_cast<size_t>(m * n)) {
    own_multiply<double>(m, n, k, 1, a_.values.data(), k, false, b_.values.data(), n, false, 0, right_.data(),
                         n);
  }

  template <class T>
  bool passes(Multiply<T> blas) const {
    for (bool tb : {false, true}) {
      const std::vector<T> b = b_.stored<T>(tb);
      for (bool ta : {false, true})
        if (!passes(blas, a_.stored<T>(ta), ta, b, tb)) return false;
    }
    return true;
  }

 private:
  // First pass: C = A B, where C holds NaN, which beta = 0 must not read. Second pass: C += 2 A B.
  template <class T>
  bool passes(Multiply<T> blas, const std::vector<T>& a, bool ta, const std::vector<T>& b,
              bool tb) const {
    const int64_t ldc = n_ + Sample::kPadding;
    std::vector<T> c(static_cast<size_t>(m_ * ldc), std::numeric_limits<T>::quiet_NaN());
    for (int again = 0; again < passes_; ++again) {
      const T alpha = again ? 2 : 1, beta = again ? 1 : 0, factor = again ? 3 : 1;
      blas(m_, n_, k_, alpha, a.data(), a_.ld(ta), ta, b.data(), b_.ld(tb), tb, beta, c.data(), ldc);
      for (int64_t i = 0; i < m_; ++i)
        for (int64_t j = 0; j < n_; ++j)
          if (!(c.data()[i * ldc + j] == factor * static_cast<T>(right_.data()[i * n_ + j]))) return false;
    }
    return true;
  }

  int64_t m_, n_, k_;
  int passes_;
  Sample a_, b_;
  std::vector<double> right_;
};

struct Choice {
  bool own;
  std::string text;
  Blas use;
};

Choice choose(const Blas& found) {
  if (is_right(found)) return {false, found.name, found};
  std::fputs(
      fmt::format("[backend] {} gives wrong products on this processor; Bonsai uses its own kernels instead, "
                  "which are slower\n",
                  found.name)
          .c_str(),
      stderr);
  return {true, "own kernels (" + found.name + " failed its self-check)", own_blas()};
}

// OpenBLAS allocates a buffer per concurrent call. If the allocation fails, it retries forever, so under a
// limit on the address space (ulimit -v) the process would hang.
constexpr size_t kBufferBytes = size_t{129} << 20;

bool has_room_for_buffers() {
  const size_t bytes = static_cast<size_t>(threads()) * kBufferBytes;
  void* trial =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (trial == MAP_FAILED) return false;
  ::munmap(trial, bytes);
  return true;
}

Choice without_buffers() {
  std::fputs(
      fmt::format("[backend] OpenBLAS needs {} MiB of address space for {} threads, more than the limit "
                  "(ulimit -v) allows; Bonsai uses its own kernels instead, which are slower\n",
                  (static_cast<size_t>(threads()) * kBufferBytes) >> 20, threads())
          .c_str(),
      stderr);
  return {true, "own kernels (no address space for the buffers of OpenBLAS)", own_blas()};
}

Choice choose_at_start() {
  const char* wanted = std::getenv("BONSAI_BLAS");
  check(!wanted || std::string(wanted) == "own", "backend",
        "BONSAI_BLAS is '{}'; give own, or leave it unset", wanted ? wanted : "");
  if (wanted) return {true, "own kernels (BONSAI_BLAS=own)", own_blas()};
  return has_room_for_buffers() ? choose(openblas()) : without_buffers();
}

Choice& choice() {
  static Choice c = choose_at_start();
  return c;
}

template <class T>
void multiply_with(Multiply<T> use, int64_t m, int64_t n, int64_t k, T alpha, const T* a, int64_t lda,
                   bool ta, const T* b, int64_t ldb, bool tb, T beta, T* c, int64_t ldc) {
  const auto run = k == 0 ? own_multiply<T> : use;
  run(m, n, k, alpha, a, lda, ta, b, ldb, tb, beta, c, ldc);
}

}  // namespace

Blas openblas() {
  openblas_set_num_threads(1);  // Bonsai's thread pool runs tiles in parallel
  return {std::string(openblas_get_config()) + " " + openblas_get_corename(), sgemm, dgemm};
}

Blas own_blas() {
  return {"own loops", own_multiply<float>, own_multiply<double>};
}

// `small` tests OpenBLAS's special kernels for products below a million multiplications, `large` its
// splitting of k.
bool is_right(const Blas& blas) {
  const Trial small(33, 37, 29, 2), large(33, 47, 651, 1);
  return small.passes(blas.f32) && small.passes(blas.f64) && large.passes(blas.f32) && large.passes(blas.f64);
}

ScopedBlas::ScopedBlas(const Blas& found) { choice() = choose(found); }
ScopedBlas::~ScopedBlas() { choice() = choose_at_start(); }

bool use_own_blas() { return choice().own; }
const char* blas_description() { return choice().text.c_str(); }

template <class T>
void own_multiply(int64_t m, int64_t n, int64_t k, T alpha, const T* a, int64_t lda, bool ta, const T* b,
                  int64_t ldb, bool tb, T beta, T* c, int64_t ldc) {
  constexpr int64_t kBlock = 64;
  for (int64_t i = 0; i < m && beta == 0; ++i) std::fill_n(c + i * ldc, n, T(0));
  for (int64_t k0 = 0; k0 < k; k0 += kBlock)
    for (int64_t i = 0; i < m; ++i)
      for (int64_t p = k0; p < std::min(k, k0 + kBlock); ++p) {
        const T x = alpha * (ta ? a[p * lda + i] : a[i * lda + p]);
        T* row = c + i * ldc;
        if (tb)
          for (int64_t j = 0; j < n; ++j) row[j] += x * b[j * ldb + p];
        else
          for (int64_t j = 0; j < n; ++j) row[j] += x * b[p * ldb + j];
      }
}
template void own_multiply(int64_t, int64_t, int64_t, float, const float*, int64_t, bool, const float*,
                           int64_t, bool, float, float*, int64_t);
template void own_multiply(int64_t, int64_t, int64_t, double, const double*, int64_t, bool, const double*,
                           int64_t, bool, double, double*, int64_t);

void multiply(int64_t m, int64_t n, int64_t k, float alpha, const float* a, int64_t lda, bool ta,
              const float* b, int64_t ldb, bool tb, float beta, float* c, int64_t ldc) {
  multiply_with(choice().use.f32, m, n, k, alpha, a, lda, ta, b, ldb, tb, beta, c, ldc);
}
void multiply(int64_t m, int64_t n, int64_t k, double alpha, const double* a, int64_t lda, bool ta,
              const double* b, int64_t ldb, bool tb, double beta, double* c, int64_t ldc) {
  multiply_with(choice().use.f64, m, n, k, alpha, a, lda, ta, b, ldb, tb, beta, c, ldc);
}

}  // namespace bonsai::cpu
