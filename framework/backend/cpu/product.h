// One single-threaded product of our own. A BLAS spends much of a small product on preparing it: here B is packed once
// for all tiles of rows, and A is read where it lies.
#pragma once

#include "bonsai/framework/backend/cpu/loops.h"

namespace bonsai::cpu::BONSAI_LEVEL {

struct Range {
  int64_t begin, end;
};

// Of row i of a matrix, as it lies in memory, the columns [i + begin, i + end): outside of it A is zero, what B holds
// there being left out or multiplied by zero; or of C nothing is wanted, and need not be computed. `all`: no band.
struct Band {
  enum Of { all, a, c } of = all;
  int64_t begin = 0, end = 0;
};

// C (m, n) = alpha op(A) op(B) + bias, or added to C, row-major; an operand that is transposed is stored so.
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

// Of a register tile of C, which takes three in four of the registers.
inline constexpr int kTileRows = 6, kTileVectors = kVectorBytes == 64 ? 4 : 2, kTileColumns = kTileVectors * kLanes;
// The columns of B that a product packs at once.
inline constexpr int64_t kStrips = kTileVectors == 4 ? 384 : 192;

// Whether this level's tiles are as wide as a BLAS's, or there is none that is right. f64 is built for the lowest
// level alone.
bool prefers_own();

// B as the tiles read it: strips of kTileColumns columns, of the last as many vectors as it needs.
int64_t packed_elements(int64_t k, int64_t n);
void pack(const Product& p, real* packed);

// Columns [n_begin, n_end) from a packed B; n_begin at the beginning of a strip.
void own_product(const Product& p, real alpha, bool add, const real* packed, int64_t n_begin, int64_t n_end);
// The same with a B that is packed on the way.
void own_product(const Product& p, real alpha, bool add);
// The same for a few rows of an A that is not transposed: B is read where it lies.
void few_rows_product(const Product& p, real alpha, bool add);
// The faster of own_product and a BLAS.
void product(const Product& p, real alpha, bool add);

}  // namespace bonsai::cpu::BONSAI_LEVEL
