// The functions used from a BLAS, and the self-check that decides at startup whether to use it: some OpenBLAS
// builds choose kernels that give wrong results on newer processors.
#pragma once

#include <cstdint>
#include <string>

namespace bonsai::cpu {

// The signature of multiply in gemm.h.
template <class T>
using Multiply = void (*)(int64_t m, int64_t n, int64_t k, T alpha, const T* a, int64_t lda,
                          bool a_transposed, const T* b, int64_t ldb, bool b_transposed, T beta, T* c,
                          int64_t ldc);

struct Blas {
  std::string name;
  Multiply<float> f32;
  Multiply<double> f64;
};

Blas openblas();
Blas own_blas();  // plain loops
bool is_right(const Blas& blas);  // checks a few products of each kind; takes under 2 ms

// For tests: during its lifetime, behaves as if `found` were the BLAS found at startup.
class ScopedBlas {
 public:
  explicit ScopedBlas(const Blas& found);
  ~ScopedBlas();
  ScopedBlas(const ScopedBlas&) = delete;
  ScopedBlas& operator=(const ScopedBlas&) = delete;
};

}  // namespace bonsai::cpu
