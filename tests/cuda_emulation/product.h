// The one matrix product behind cuBLAS and cuBLASLt: column-major, D = epilogue(alpha op(A) op(B) + beta C).
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
  cudaDataType type = CUDA_R_32F;  // or CUDA_R_64F: of everything
  bool transpose_a = false, transpose_b = false;
  int64_t m = 0, n = 0, k = 0, batch = 1;
  double alpha = 1, beta = 0;
  Matrix a, b, c, d;
  bool tf32 = false;  // factors are rounded to 10 bits of mantissa
  // After the product: a bias of m elements, then GELU in its tanh form, whose argument `aux` keeps.
  const void* bias = nullptr;
  bool gelu = false;
  Matrix aux;
};

// What is wrong with sizes and leading dimensions, or nothing.
std::string problem_of(const Product& p);
// Queued in the name of `who`; checks that every matrix lies in live device memory.
cublasStatus_t enqueue_product(const Product& p, cudaStream_t stream, const char* who);
// Reports a refused call.
cublasStatus_t refuse_product(cublasStatus_t status, const std::string& problem);

}  // namespace emulation
