// The matrix product used for both cuBLAS and cuBLASLt: column-major, D = epilogue(alpha op(A) op(B) + beta
// C).
#pragma once

#include <cublas_v2.h>

#include "bonsai/tests/cuda_emulation/emulation.h"

namespace emulation {

struct Matrix {
  void* data = nullptr;
  int64_t ld = 0;      // elements from one column to the next
  int64_t stride = 0;  // elements from one matrix of a batch to the next
};

struct Product {
  cudaDataType type = CUDA_R_32F;  // of all operands; or CUDA_R_64F
  bool transpose_a = false, transpose_b = false;
  int64_t m = 0, n = 0, k = 0, batch = 1;
  double alpha = 1, beta = 0;
  Matrix a, b, c, d;
  bool tf32 = false;  // operands are rounded to a 10-bit mantissa
  // The epilogue: adds a bias of m elements, then applies the tanh form of GELU, whose argument is stored in
  // `aux`.
  const void* bias = nullptr;
  bool gelu = false;
  Matrix aux;
};

// What is wrong with the sizes and leading dimensions; empty if nothing is.
std::string problem_of(const Product& p);
// Queues the product in the name of `who`, after checking that every matrix is in live device memory.
cublasStatus_t enqueue_product(const Product& p, cudaStream_t stream, const char* who);
// Reports that a call was rejected.
cublasStatus_t refuse_product(cublasStatus_t status, const std::string& problem);

}  // namespace emulation
