// The library's device: one stream, on which all work runs in order; cuBLAS; copies; scratch memory.
#pragma once

#include <cublasLt.h>
#include <cublas_v2.h>

#include "bonsai/framework/backend/cuda/launch.h"
#include "bonsai/framework/backend/cuda/library.h"

namespace gpu {
void check(cublasStatus_t status, const char* call);
// To be called after a call that has queued work. If BONSAI_CUDA_SYNC=1, waits for the work and throws an
// error that names the call if it failed.
void called(const char* call);
}

namespace bonsai::cuda {

// Throws if the device cannot be opened.
void open_stream(int index, const Host& host);
void describe_device(char* text, size_t size);

// These also make the device the calling thread's current device.
cudaStream_t stream();
cublasHandle_t blas();
cublasLtHandle_t blas_lt();
void* workspace();  // kWorkspace bytes, shared by cuBLAS and cuBLASLt
inline constexpr size_t kWorkspace = size_t{32} << 20;
size_t shared_memory();  // maximum bytes per block
bool tf32();
void use_tf32(bool on);

void* allocate(size_t bytes, size_t used);  // null when out of memory
void release(void* block);
int64_t free_bytes();
// A copy from host memory is queued; the host's bytes may be changed immediately. A copy to host memory
// waits, and throws an error if a kernel has found an id out of range.
void copy(void* to, const void* from, size_t bytes);
void synchronise();

IndexError* index_error();

// Memory from the pool, for work that is queued from now on.
void* take_scratch(size_t bytes);
void give_back_scratch(void* block, size_t bytes);

}  // namespace bonsai::cuda
