// What is taken from a BLAS, and the self-check that decides at start whether it is: some builds pick kernels
// that give wrong numbers on newer processors.
#pragma once

#include <cstdint>
#include <string>

namespace bonsai::cpu {

// One element type's products, with the arguments of multiply and multiply_vector in gemm.h.
template <class T>
struct Products {
  void (*matrix)(int64_t m, int64_t n, int64_t k, T alpha, const T* a, int64_t lda, bool a_transposed,
                 const T* b, int64_t ldb, bool b_transposed, T beta, T* c, int64_t ldc);
  void (*vector)(bool rows, int64_t n, int64_t k, T alpha, const T* matrix, int64_t ld, const T* x,
                 int64_t x_step, T beta, T* y);
};

struct Blas {
  std::string name;
  Products<float> f32;
  Products<double> f64;
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
