// Small kernels that use the features of a device: see sample.cu.
#pragma once

#include "bonsai/framework/backend/cuda/launch.h"

namespace sample {

__global__ void nothing(int);
__global__ void scale(double* p, int n, double by);
__global__ void sum_rows(const float* x, float* out, int n);       // one block per row, any number of warps
__global__ void transpose(const float* x, float* out, int m, int n);  // blocks of 32 by 8
__global__ void histogram(const int* x, int n, int* counts,
                          int bins);                               // with bins ints of dynamic shared memory
__global__ void ask_lanes(unsigned* out);                          // one warp; six numbers per lane
__global__ void vote_in_block(int* out);                           // 96 threads
__global__ void scan_warp(double* p);                              // inclusive sum over a warp
__global__ void where_am_i(unsigned* out);                         // six numbers per thread
__global__ void last_block(const float* x, float* partial, unsigned* arrived,
                           float* out);  // blocks of one thread

}  // namespace sample
