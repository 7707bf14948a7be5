// Single-threaded matrix products by OpenBLAS, and the plain loops that check it.
#pragma once

#include <cstdint>

namespace bonsai::cpu {

// C (m, n) = alpha * op(A) op(B) + beta * C, row-major; beta is 0 (C is not read) or 1.
void multiply(int64_t m, int64_t n, int64_t k, float alpha, const float* a, int64_t lda, bool a_transposed,
              const float* b, int64_t ldb, bool b_transposed, float beta, float* c, int64_t ldc);
void multiply(int64_t m, int64_t n, int64_t k, double alpha, const double* a, int64_t lda, bool a_transposed,
              const double* b, int64_t ldb, bool b_transposed, double beta, double* c, int64_t ldc);

// Whether Bonsai's own kernels replace OpenBLAS. Decided at startup by a self-check with known results, the
// address space left for OpenBLAS's buffers, and BONSAI_BLAS=own.
bool use_own_blas();
const char* blas_description();

// The plain loops; public for tests.
template <class T>
void own_multiply(int64_t m, int64_t n, int64_t k, T alpha, const T* a, int64_t lda, bool a_transposed,
                  const T* b, int64_t ldb, bool b_transposed, T beta, T* c, int64_t ldc);

}  // namespace bonsai::cpu
