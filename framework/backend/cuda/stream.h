// The device as the library holds it: one stream, on which everything runs in order, cuBLAS, copies, scratch memory.
#pragma once

#include <cublasLt.h>
#include <cublas_v2.h>

#include "bonsai/framework/backend/cuda/launch.h"
#include "bonsai/framework/backend/cuda/library.h"

namespace gpu {
void check(cublasStatus_t status, const char* call);
// After a call that has queued work: with BONSAI_CUDA_SYNC=1 waits for it, and names the call in the error if it failed.
void called(const char* call);
}

namespace bonsai::cuda {

// Throws where the device cannot be had.
void open_stream(int index, const Host& host);
void describe_device(char* text, size_t size);

// Whoever asks for these may then use the device: it is this thread's current one.
cudaStream_t stream();
cublasHandle_t blas();
cublasLtHandle_t blas_lt();
void* workspace();  // of both, kWorkspace bytes
inline constexpr size_t kWorkspace = size_t{32} << 20;
size_t shared_memory();  // bytes that a block may have
bool tf32();
void use_tf32(bool on);

void* allocate(size_t bytes, size_t used);  // null when there is none left
void release(void* block);
int64_t free_bytes();
// From host memory: queued, and the host's bytes may change at once. To host memory: waits, and ends in an error where
// a kernel met an id out of range.
void copy(void* to, const void* from, size_t bytes);
void synchronise();

IndexError* index_error();

// Of the pool, for work queued from now on.
void* take_scratch(size_t bytes);
void give_back_scratch(void* block, size_t bytes);

}  // namespace bonsai::cuda
