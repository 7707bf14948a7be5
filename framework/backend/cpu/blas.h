// What is taken from a BLAS, and the self-check that decides at start whether it is: some builds pick kernels
// that give wrong numbers on newer processors.
#pragma once

#include <cstdint>
#include <string>

namespace bonsai::cpu {

// As multiply in gemm.h.
template <class T>
using Multiply = void (*)(int64_t m, int64_t n, int64_t k, T alpha, const T* a, int64_t lda, bool a_transposed,
                          const T* b, int64_t ldb, bool b_transposed, T beta, T* c, int64_t ldc);

struct Blas {
  std::string name;
  Multiply<float> f32;
  Multiply<double> f64;
};

Blas openblas();
Blas own_blas();
bool is_right(const Blas& blas);  // a few products of each kind; under 2 ms

// For tests: while it lives, this is the library that was found at start, with all that follows.
class ScopedBlas {
 public:
  explicit ScopedBlas(const Blas& found);
  ~ScopedBlas();
  ScopedBlas(const ScopedBlas&) = delete;
  ScopedBlas& operator=(const ScopedBlas&) = delete;
};

}  // namespace bonsai::cpu
