// The calls into OpenBLAS, its self-check, and the loops that stand in for it.
#include <cblas.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "framework/backend/cpu/gemm.h"
#include "framework/core/error.h"

namespace bonsai::cpu {
namespace {

CBLAS_TRANSPOSE transposed(bool yes) { return yes ? CblasTrans : CblasNoTrans; }
int narrow(int64_t n) { return static_cast<int>(n); }
// BLAS refuses a leading dimension of 0, which an empty operand may have.
int leading(int64_t n) { return static_cast<int>(std::max<int64_t>(1, n)); }

void blas_multiply(int64_t m, int64_t n, int64_t k, float alpha, const float* a, int64_t lda, bool ta,
                   const float* b, int64_t ldb, bool tb, float beta, float* c, int64_t ldc) {
  cblas_sgemm(CblasRowMajor, transposed(ta), transposed(tb), narrow(m), narrow(n), narrow(k), alpha,
              a, leading(lda), b, leading(ldb), beta, c, leading(ldc));
}
void blas_multiply(int64_t m, int64_t n, int64_t k, double alpha, const double* a, int64_t lda, bool ta,
                   const double* b, int64_t ldb, bool tb, double beta, double* c, int64_t ldc) {
  cblas_dgemm(CblasRowMajor, transposed(ta), transposed(tb), narrow(m), narrow(n), narrow(k), alpha,
              a, leading(lda), b, leading(ldb), beta, c, leading(ldc));
}

void blas_multiply_vector(bool rows, int64_t n, int64_t k, float alpha, const float* matrix, int64_t ld, const float* x,
                          int64_t x_step, float beta, float* y) {
  cblas_sgemv(CblasRowMajor, transposed(!rows), narrow(rows ? n : k), narrow(rows ? k : n), alpha, matrix, leading(ld), x,
              narrow(x_step), beta, y, 1);
}
void blas_multiply_vector(bool rows, int64_t n, int64_t k, double alpha, const double* matrix, int64_t ld, const double* x,
                          int64_t x_step, double beta, double* y) {
  cblas_dgemv(CblasRowMajor, transposed(!rows), narrow(rows ? n : k), narrow(rows ? k : n), alpha, matrix, leading(ld), x,
              narrow(x_step), beta, y, 1);
}

// Small whole numbers: every order of adding gives the same bits, so equality is exact. The sizes
// reach the kernels for full tiles and for edges, and C starts as NaN, which beta = 0 must not read.
template <class T>
bool agrees(int64_t m, int64_t n, int64_t k, bool ta, bool tb) {
  std::vector<T> a(m * k), b(k * n), c(m * n, static_cast<T>(std::strtod("nan", nullptr))), own(m * n);
  for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<T>(int(i * 7 % 11) - 5);
  for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<T>(int(i * 5 % 13) - 6);
  const int64_t lda = ta ? m : k, ldb = tb ? k : n;
  blas_multiply(m, n, k, T(1), a.data(), lda, ta, b.data(), ldb, tb, T(0), c.data(), n);
  own_multiply<T>(m, n, k, T(1), a.data(), lda, ta, b.data(), ldb, tb, T(0), own.data(), n);
  if (c != own) return false;
  // The first row again, as a matrix times a vector.
  std::vector<T> row(n, static_cast<T>(std::strtod("nan", nullptr)));
  blas_multiply_vector(tb, n, k, T(1), b.data(), ldb, a.data(), ta ? m : 1, T(0), row.data());
  return std::equal(row.begin(), row.end(), own.begin());
}

template <class T>
bool blas_is_right() {
  for (bool ta : {false, true})
    for (bool tb : {false, true})
      if (!agrees<T>(33, 37, 29, ta, tb) || !agrees<T>(64, 48, 96, ta, tb)) return false;
  return true;
}

struct Choice {
  bool own;
  std::string text;
  Choice() {
    openblas_set_num_threads(1);  // our tiles are the parallelism
    const char* wanted = std::getenv("BONSAI_BLAS");
    const std::string library = std::string(openblas_get_config()) + " " + openblas_get_corename();
    check(!wanted || std::string(wanted) == "own", "backend", "BONSAI_BLAS is '{}'; give own, or leave it unset",
          wanted ? wanted : "");
    if (wanted) {
      own = true, text = "own loops (BONSAI_BLAS=own)";
    } else {
      own = !blas_is_right<float>() || !blas_is_right<double>();
      text = own ? "own loops (" + library + " failed its self-check)" : library;
    }
  }
};

const Choice& choice() {
  static const Choice c;
  return c;
}

template <class T>
void choose_multiply(int64_t m, int64_t n, int64_t k, T alpha, const T* a, int64_t lda, bool ta,
                     const T* b, int64_t ldb, bool tb, T beta, T* c, int64_t ldc) {
  if (choice().own || k == 0)
    own_multiply(m, n, k, alpha, a, lda, ta, b, ldb, tb, beta, c, ldc);
  else
    blas_multiply(m, n, k, alpha, a, lda, ta, b, ldb, tb, beta, c, ldc);
}

}  // namespace

bool use_own_blas() { return choice().own; }
const char* blas_description() { return choice().text.c_str(); }

template <class T>
void own_multiply(int64_t m, int64_t n, int64_t k, T alpha, const T* a, int64_t lda, bool ta,
                  const T* b, int64_t ldb, bool tb, T beta, T* c, int64_t ldc) {
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
template void own_multiply(int64_t, int64_t, int64_t, double, const double*, int64_t, bool,
                           const double*, int64_t, bool, double, double*, int64_t);

void multiply(int64_t m, int64_t n, int64_t k, float alpha, const float* a, int64_t lda, bool ta,
              const float* b, int64_t ldb, bool tb, float beta, float* c, int64_t ldc) {
  choose_multiply(m, n, k, alpha, a, lda, ta, b, ldb, tb, beta, c, ldc);
}
void multiply(int64_t m, int64_t n, int64_t k, double alpha, const double* a, int64_t lda, bool ta,
              const double* b, int64_t ldb, bool tb, double beta, double* c, int64_t ldc) {
  choose_multiply(m, n, k, alpha, a, lda, ta, b, ldb, tb, beta, c, ldc);
}

void multiply_vector(bool rows, int64_t n, int64_t k, float alpha, const float* matrix, int64_t ld,
                     const float* x, int64_t x_step, float beta, float* y) {
  choice().own ? own_multiply(1, n, k, alpha, x, x_step, true, matrix, ld, rows, beta, y, n)
               : blas_multiply_vector(rows, n, k, alpha, matrix, ld, x, x_step, beta, y);
}
void multiply_vector(bool rows, int64_t n, int64_t k, double alpha, const double* matrix, int64_t ld,
                     const double* x, int64_t x_step, double beta, double* y) {
  choice().own ? own_multiply(1, n, k, alpha, x, x_step, true, matrix, ld, rows, beta, y, n)
               : blas_multiply_vector(rows, n, k, alpha, matrix, ld, x, x_step, beta, y);
}

}  // namespace bonsai::cpu
