// Bonsai's own single-threaded matrix product. A BLAS call on a tile of rows packs both operands again; here
// B is packed once for all tiles of rows, and A is read in place.
#pragma once

#include "bonsai/framework/backend/cpu/loops.h"

namespace bonsai::cpu::BONSAI_LEVEL {

struct Range {
  int64_t begin, end;
};

// A diagonal band: row i of the matrix, as stored in memory, covers columns [i + begin, i + end). `a`: A is
// zero outside of the band, and the corresponding elements of B may or may not be multiplied by these zeros.
// `c`: C is not needed outside of the band and may or may not be computed there. `all`: no band.
struct Band {
  enum Of { all, a, c } of = all;
  int64_t begin = 0, end = 0;
};

// C (m, n) = alpha op(A) op(B) + bias, or C += ..., row-major; a transposed operand is stored as its
// transpose.
struct Product {
  int64_t m, n, k;
  const real* a;
  int64_t lda;
  bool a_transposed;
  const real* b;
  int64_t ldb;
  bool b_transposed;
  real* c;
  int64_t ldc;
  const real* bias = nullptr;  // (n)
  Band band = {};
};

// Micro-kernel tile (MR x NR); its accumulators use three quarters of the vector registers.
inline constexpr int kMR = 6, kNRVectors = kVectorBytes == 64 ? 4 : 2, kNR = kNRVectors * kLanes;
// Columns of B that a product packs at once.
inline constexpr int64_t kNC = kNRVectors == 4 ? 384 : 192;

// True if Bonsai's micro-kernel is as wide as a BLAS's (f32 at level v3 or v4), or no BLAS is in use. f64 is
// built only for the lowest level.
bool prefers_own();

// Packs op(B) (k, n) into panels of kNR columns, all of it: packed_elements(k, n) elements.
int64_t packed_elements(int64_t k, int64_t n);
void pack(const Product& p, real* packed);

// Computes columns [n_begin, n_end) from a packed B. n_begin must be the beginning of a panel.
void own_product(const Product& p, real alpha, bool add, const real* packed, int64_t n_begin, int64_t n_end);
// Computes all columns and packs B itself, KC x NC elements at a time.
void own_product(const Product& p, real alpha, bool add);
// For few rows of an A that is not transposed: one matrix-vector product per row. Reads B in place.
void gemv(const Product& p, real alpha, bool add);
// The faster of own_product and a BLAS.
void product(const Product& p, real alpha, bool add);

}  // namespace bonsai::cpu::BONSAI_LEVEL
