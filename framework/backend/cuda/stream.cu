// The stream, cuBLAS, and the copies between host and device.
#include "bonsai/framework/backend/cuda/stream.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

namespace bonsai::cuda {
namespace {

constexpr size_t kSlots = 4, kSlotBytes = size_t{1} << 20;  // pinned memory for copies
constexpr size_t kMailbox = 4096;                           // maximum bytes of a small read

// Pinned memory. `read` is the event after which no queued copy reads it.
struct Slot {
  char* bytes = nullptr;
  cudaEvent_t read = nullptr;
};

struct Opened {
  Host host{};
  int index = 0;
  cudaStream_t stream = nullptr;
  cublasHandle_t blas = nullptr;
  cublasLtHandle_t blas_lt = nullptr;
  void* workspace = nullptr;  // shared by cuBLAS and cuBLASLt
  int shared_memory = 0;
  bool tf32 = false;
  bool sync = false;  // wait after each launch
  Slot slots[kSlots];
  size_t next_slot = 0;
  IndexError* index_error = nullptr;  // on the device
  char* mailbox = nullptr;            // on the device: the bytes of a small read, followed by the index error
};
Opened opened;  // never closed: tensors may outlive main

constexpr size_t kOwn = kWorkspace + kMailbox + 2 * sizeof(IndexError);  // bytes that the backend itself uses

// Any thread may call, and CUDA's current device is per thread: device 0 until the thread selects another.
void enter() {
  thread_local bool selected = false;
  if (selected) return;
  gpu::check(cudaSetDevice(opened.index), "cudaSetDevice");
  selected = true;
}

bool on_device(const void* p) {
  cudaPointerAttributes a{};
  gpu::check(cudaPointerGetAttributes(&a, p), "cudaPointerGetAttributes");
  return a.type == cudaMemoryTypeDevice;
}

void queue_copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  gpu::check(cudaMemcpyAsync(to, from, bytes, kind, opened.stream), "cudaMemcpyAsync");
}

Slot& free_slot() {
  Slot& slot = opened.slots[opened.next_slot++ % kSlots];
  gpu::check(cudaEventSynchronize(slot.read), "cudaEventSynchronize");
  return slot;
}

void upload(char* to, const char* from, size_t bytes) {
  for (size_t at = 0; at < bytes; at += kSlotBytes) {
    const size_t some = std::min(kSlotBytes, bytes - at);
    Slot& slot = free_slot();
    std::memcpy(slot.bytes, from + at, some);
    queue_copy(to + at, slot.bytes, some, cudaMemcpyHostToDevice);
    gpu::check(cudaEventRecord(slot.read, opened.stream), "cudaEventRecord");
  }
}

// Gathers a small read and the index error, so that one copy transfers both.
__global__ void gather(const char* from, int64_t bytes, IndexError* index_error, char* mailbox) {
  for (int64_t i = threadIdx.x; i < bytes; i += blockDim.x) mailbox[i] = from[i];
  if (threadIdx.x == 0) {
    *reinterpret_cast<IndexError*>(mailbox + kMailbox) = *index_error;
    *index_error = {};
  }
}

void report(const IndexError& f) {
  if (f.count == 0) return;
  const char* const ops[] = {"embedding", "cross_entropy", "gather", "scatter_add"};
  const std::string text = "id " + std::to_string(f.value) + " at position " + std::to_string(f.position) +
                           " is not in [0, " + std::to_string(f.limit) + ")";
  opened.host.fail(ops[f.op], text.c_str());
}

void read_small(char* to, const char* from, size_t bytes) {
  Slot& slot = free_slot();
  gpu::launch({1, 128, 0, opened.stream}, gather, from, static_cast<int64_t>(bytes), opened.index_error,
              opened.mailbox);
  queue_copy(slot.bytes, opened.mailbox, kMailbox + sizeof(IndexError), cudaMemcpyDeviceToHost);
  synchronise();
  std::memcpy(to, slot.bytes, bytes);
  report(*reinterpret_cast<const IndexError*>(slot.bytes + kMailbox));
}

void download(char* to, const char* from, size_t bytes) {
  for (; bytes > kMailbox; to += kSlotBytes, from += kSlotBytes) {
    const size_t some = std::min(kSlotBytes, bytes);
    Slot& slot = free_slot();
    queue_copy(slot.bytes, from, some, cudaMemcpyDeviceToHost);
    synchronise();
    std::memcpy(to, slot.bytes, some);
    bytes -= some;
    if (bytes == 0) return read_small(to, from, 0);
  }
  read_small(to, from, bytes);
}

}  // namespace

void open_stream(int index, const Host& host) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaErrorInsufficientDriver)
    throw std::runtime_error(
        "there is no NVIDIA driver, or it is older than this CUDA library; install a newer one");
  if (status != cudaSuccess || count == 0)
    throw std::runtime_error(std::string("there is no CUDA device: ") + cudaGetErrorString(status));
  if (index >= count)
    throw std::runtime_error("there is no device cuda:" + std::to_string(index) + "; the machine has " +
                             std::to_string(count));
  const char* sync = std::getenv("BONSAI_CUDA_SYNC");
  opened.sync = sync && *sync && std::strcmp(sync, "0") != 0;
  opened.index = index;
  enter();
  gpu::check(cudaDeviceGetAttribute(&opened.shared_memory, cudaDevAttrMaxSharedMemoryPerBlockOptin, index),
             "cudaDeviceGetAttribute");
  gpu::check(cudaStreamCreateWithFlags(&opened.stream, cudaStreamNonBlocking), "cudaStreamCreate");
  for (Slot& slot : opened.slots) {
    gpu::check(cudaMallocHost(reinterpret_cast<void**>(&slot.bytes), kSlotBytes), "cudaMallocHost");
    gpu::check(cudaEventCreateWithFlags(&slot.read, cudaEventDisableTiming), "cudaEventCreate");
  }
  size_t free = 0, total = 0;
  gpu::check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  if (free < kOwn)
    throw std::runtime_error(std::to_string(free) + " of the device's " + std::to_string(total) +
                             " bytes are free, but the backend itself needs " + std::to_string(kOwn) +
                             "; stop other programs on the device, or choose another with --device cuda:N");
  gpu::check(cudaMalloc(reinterpret_cast<void**>(&opened.mailbox), kMailbox + sizeof(IndexError)),
             "cudaMalloc");
  gpu::check(cudaMalloc(reinterpret_cast<void**>(&opened.index_error), sizeof(IndexError)), "cudaMalloc");
  gpu::check(cudaMemsetAsync(opened.mailbox, 0, kMailbox + sizeof(IndexError), opened.stream),
             "cudaMemsetAsync");
  gpu::check(cudaMemsetAsync(opened.index_error, 0, sizeof(IndexError), opened.stream), "cudaMemsetAsync");
  gpu::check(cublasCreate(&opened.blas), "cublasCreate");
  gpu::check(cublasLtCreate(&opened.blas_lt), "cublasLtCreate");
  gpu::check(cublasSetStream(opened.blas, opened.stream), "cublasSetStream");
  gpu::check(cudaMalloc(&opened.workspace, kWorkspace), "cudaMalloc");
  gpu::check(cublasSetWorkspace(opened.blas, opened.workspace, kWorkspace), "cublasSetWorkspace");
  opened.host = host;  // until here, errors are exceptions that say why the device cannot be used
}

void describe_device(char* text, size_t size) {
  cudaDeviceProp p{};
  int driver = 0, runtime = 0;
  gpu::check(cudaGetDeviceProperties(&p, opened.index), "cudaGetDeviceProperties");
  gpu::check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  gpu::check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  std::snprintf(text, size, "%s, %.1f GiB, compute capability %d.%d, driver %d.%d, runtime %d.%d", p.name,
                static_cast<double>(p.totalGlobalMem) / 1073741824.0, p.major, p.minor, driver / 1000,
                driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
}

cudaStream_t stream() { return enter(), opened.stream; }
cublasHandle_t blas() { return enter(), opened.blas; }
cublasLtHandle_t blas_lt() { return enter(), opened.blas_lt; }
void* workspace() { return opened.workspace; }
size_t shared_memory() { return static_cast<size_t>(opened.shared_memory); }
bool tf32() { return opened.tf32; }
void use_tf32(bool on) { opened.tf32 = on; }
IndexError* index_error() { return opened.index_error; }
void* take_scratch(size_t bytes) { return opened.host.take(bytes); }
void give_back_scratch(void* block, size_t bytes) { opened.host.give_back(block, bytes); }

void* allocate(size_t bytes, size_t /*used*/) {
  enter();
  void* block = nullptr;
  const cudaError_t status = cudaMalloc(&block, bytes);
  if (status == cudaErrorMemoryAllocation) return (void)cudaGetLastError(), nullptr;
  gpu::check(status, "cudaMalloc");
  return block;
}

// Ignores errors: the last tensors may be released after the driver has shut down.
void release(void* block) { (void)cudaFree(block); }

int64_t free_bytes() {
  enter();
  size_t free = 0, total = 0;
  gpu::check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return static_cast<int64_t>(free);
}

void copy(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  enter();
  const bool up = on_device(to), down = on_device(from);
  if (up && down)
    queue_copy(to, from, bytes, cudaMemcpyDeviceToDevice);
  else if (up)
    upload(static_cast<char*>(to), static_cast<const char*>(from), bytes);
  else if (down)
    download(static_cast<char*>(to), static_cast<const char*>(from), bytes);
  else
    std::memcpy(to, from, bytes);
}

void synchronise() {
  enter();
  gpu::check(cudaStreamSynchronize(opened.stream), "cudaStreamSynchronize");
}

}  // namespace bonsai::cuda

namespace gpu {
namespace {

void end(const char* call, const char* status) {
  const std::string text = std::string(call) + " failed: " + status;
  if (!bonsai::cuda::opened.host.fail) throw std::runtime_error(text);
  bonsai::cuda::opened.host.fail("cuda", text.c_str());
}

// An error in a kernel, which is reported by whichever call comes next.
bool is_fault(cudaError_t status) {
  return status >= cudaErrorIllegalAddress && status <= cudaErrorLaunchFailure;
}

std::string demangled(const char* name) {
  int status = 0;
  char* const plain = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  const std::string text = plain ? plain : name;
  std::free(plain);
  return text;
}

}  // namespace

void check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  const std::string text = cudaGetErrorString(status);
  const bool hint = is_fault(status) && !bonsai::cuda::opened.sync;
  end(call,
      (text + (hint ? "; run again with BONSAI_CUDA_SYNC=1, which names the kernel at fault" : "")).c_str());
}
void launched(cudaError_t status, const void* kernel) {
  if (!bonsai::cuda::opened.sync) return check(status, "a kernel's launch");
  const char* name = "";
  (void)cudaFuncGetName(&name, kernel);  // first: after a kernel has failed, the device answers no call
  if (status == cudaSuccess) status = cudaStreamSynchronize(bonsai::cuda::opened.stream);
  if (status != cudaSuccess) end(("kernel " + demangled(name)).c_str(), cudaGetErrorString(status));
}
void called(const char* call) {
  if (bonsai::cuda::opened.sync) check(cudaStreamSynchronize(bonsai::cuda::opened.stream), call);
}
void check(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) end(call, cublasGetStatusString(status));
}

}  // namespace gpu
