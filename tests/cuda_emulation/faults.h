// Kernels with one fault each, and some without. See faults.cu.
#pragma once

#include "bonsai/framework/backend/cuda/launch.h"

namespace faults {

struct View {
  const float* data;
  int n;
};

// Kernels without a fault of their own.
__global__ void fill(float* p, int n);
__global__ void copy(float* to, const float* from, int n);
__global__ void sum_view(float* out, View view);
__global__ void use_dynamic(float* p);

__global__ void write_at(float* p, int at);
__global__ void divide(int* p, int by);
__global__ void follow(float* const* table);
__global__ void exit_before_barrier(float* p);
__global__ void two_barriers(float* p);
__global__ void shuffle_after_exit(float* p, int n);
__global__ void shuffle_in_branch(float* p);
__global__ void shuffle_two_places(float* p);
__global__ void shuffle_from_idle(float* p);
__global__ void shuffle_not_in_mask(float* p);
__global__ void no_barrier(float* p);
__global__ void no_syncwarp(float* p);
__global__ void no_barrier_in_loop(float* p, int n);
__global__ void read_unwritten_shared(float* p);
__global__ void too_much_shared(float* p);
__global__ void deep_stack(float* p, int n);
__global__ void past_shared(float* p);
__global__ void trap_if_negative(const float* p);

}  // namespace faults
