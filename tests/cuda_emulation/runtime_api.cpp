// The CUDA runtime's functions for memory, copies and devices, with the prototypes of the toolkit's headers.
#include <cstdio>
#include <cstring>

#include "bonsai/tests/cuda_emulation/emulation.h"

namespace emulation {
namespace {

uintptr_t number(const void* p) { return reinterpret_cast<uintptr_t>(p); }

struct Copy {
  void* to;
  const void* from;
  size_t bytes;
  cudaMemcpyKind kind;
  bool to_device() const { return kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice; }
  bool from_device() const { return kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice; }
};

// Derives the kind of copy from the addresses if the caller passed cudaMemcpyDefault.
Copy resolved(Copy c) {
  if (c.kind != cudaMemcpyDefault) return c;
  const bool to = in_device_range(number(c.to)), from = in_device_range(number(c.from));
  c.kind = to ? (from ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice)
              : (from ? cudaMemcpyDeviceToHost : cudaMemcpyHostToHost);
  return c;
}

bool is_right(const Copy& c, const std::string& call) {
  const std::string to = call + " destination", from = call + " source";
  return (c.to_device() ? check_device(c.to, c.bytes, to.c_str()) : check_host(c.to, c.bytes, to.c_str())) &&
         (c.from_device() ? check_device(c.from, c.bytes, from.c_str())
                          : check_host(c.from, c.bytes, from.c_str()));
}

void count(const Copy& c) {
  Counts& n = counts();
  if (c.kind == cudaMemcpyHostToDevice) ++n.to_device;
  if (c.kind == cudaMemcpyDeviceToHost) ++n.to_host;
  if (c.kind == cudaMemcpyDeviceToDevice) ++n.within_device;
}

void carry_out(const Copy& c) {
  const Open open;
  std::memmove(c.to, c.from, c.bytes);
}

void fill(void* p, int value, size_t bytes) {
  if (!check_device(p, bytes, "cudaMemset")) return;
  const Open open;
  std::memset(p, value, bytes);
}

}  // namespace
}  // namespace emulation

using namespace emulation;

extern "C" {

cudaError_t cudaMalloc(void** p, size_t bytes) {
  const Call call("cudaMalloc", __builtin_return_address(0));
  if (broken()) return broken();
  ++counts().allocations;
  return allocate(p, bytes);
}
cudaError_t cudaFree(void* p) {
  const Call call("cudaFree", __builtin_return_address(0));
  finish_all();
  return release(p);
}
cudaError_t cudaMallocAsync(void** p, size_t bytes, cudaStream_t s) {
  const Call call("cudaMallocAsync", __builtin_return_address(0));
  if (!check_stream(s)) return cudaErrorInvalidResourceHandle;
  ++counts().allocations;
  return allocate(p, bytes);
}
cudaError_t cudaFreeAsync(void* p, cudaStream_t s) {
  const Call call("cudaFreeAsync", __builtin_return_address(0));
  return enqueue(s, [p] { release(p); });
}
cudaError_t cudaHostAlloc(void** p, size_t bytes, unsigned) {
  const Call call("cudaHostAlloc", __builtin_return_address(0));
  return allocate_pinned(p, bytes);
}
cudaError_t cudaMallocHost(void** p, size_t bytes) {
  const Call call("cudaMallocHost", __builtin_return_address(0));
  return allocate_pinned(p, bytes);
}
cudaError_t cudaFreeHost(void* p) {
  const Call call("cudaFreeHost", __builtin_return_address(0));
  finish_all();
  return release_pinned(p);
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  const Call call("cudaMemcpy", __builtin_return_address(0));
  if (broken()) return broken();
  order_with_default(nullptr);
  finish(nullptr);
  const Copy c = resolved({to, from, bytes, kind});
  if (!is_right(c, "cudaMemcpy")) return set_last(cudaErrorInvalidValue);
  count(c);
  carry_out(c);
  return broken();
}

// Pageable memory is read or written before the call returns, pinned memory when the queued copy runs. Until
// then a pinned destination is filled with NaN, which exposes reads that are too early.
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t s) {
  const Call call("cudaMemcpyAsync", __builtin_return_address(0));
  if (broken()) return broken();
  const Copy c = resolved({to, from, bytes, kind});
  if (!is_right(c, "cudaMemcpyAsync")) return set_last(cudaErrorInvalidValue);
  count(c);
  const bool pageable = (!c.to_device() && !is_pinned(to)) || (!c.from_device() && !is_pinned(from));
  if (options().lazy && !c.to_device() && !pageable) poison(number(to), bytes);
  const cudaError_t status = enqueue(s, [c] {
    if (is_right(c, "cudaMemcpyAsync")) carry_out(c);
  });
  if (status == cudaSuccess && pageable) finish(s);
  return status ? status : broken();
}
cudaError_t cudaMemsetAsync(void* p, int value, size_t bytes, cudaStream_t s) {
  const Call call("cudaMemsetAsync", __builtin_return_address(0));
  const cudaError_t status = enqueue(s, [=] { fill(p, value, bytes); });
  return status ? status : broken();
}
cudaError_t cudaMemset(void* p, int value, size_t bytes) {
  const Call call("cudaMemset", __builtin_return_address(0));
  return cudaMemsetAsync(p, value, bytes, nullptr);
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* out, const void* p) {
  const Call call("cudaPointerGetAttributes", __builtin_return_address(0));
  *out = cudaPointerAttributes{};
  out->device = -2;  // not memory of a device
  out->type = cudaMemoryTypeUnregistered;
  const bool device = is_device(p, 1);
  if (in_device_range(number(p)) && !device)
    return refuse(cudaErrorInvalidValue, "cudaPointerGetAttributes: " + describe(number(p)));
  if (device || is_pinned(p)) {
    out->type = device ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
    out->device = 0;
    out->devicePointer = const_cast<void*>(p);
    out->hostPointer = device ? nullptr : const_cast<void*>(p);
  }
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  const Call call("cudaMemGetInfo", __builtin_return_address(0));
  *total = options().memory;
  *free = *total - bytes_allocated();
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = options().devices;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = current_device();
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  const Call call("cudaSetDevice", __builtin_return_address(0));
  if (device < 0 || device >= options().devices)
    return refuse(cudaErrorInvalidDevice, "cudaSetDevice: there is no device " + std::to_string(device));
  current_device() = device;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

// The real function also returns mangled names.
cudaError_t cudaFuncGetName(const char** name, const void* kernel) {
  const Call call("cudaFuncGetName", __builtin_return_address(0));
  *name = name_of(kernel).c_str();
  return broken();
}
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  const Call call("cudaFuncSetAttribute", __builtin_return_address(0));
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  if (value < 0 || static_cast<size_t>(value) > kSharedBytes)
    return refuse(cudaErrorInvalidValue, "cudaFuncSetAttribute for " + name_of(kernel) + ": " +
                                             std::to_string(value) +
                                             " bytes of shared memory; a block has at most 227 KiB");
  set_shared_limit(kernel, static_cast<size_t>(value));
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
  const Call call("cudaGetDeviceProperties", __builtin_return_address(0));
  if (device < 0 || device >= options().devices)
    return refuse(cudaErrorInvalidDevice, "cudaGetDeviceProperties: no such device");
  *p = cudaDeviceProp{};
  std::snprintf(p->name, sizeof p->name, "emulated device (limits of an H200)");
  p->major = 9;
  p->multiProcessorCount = 132;
  p->warpSize = 32;
  p->maxThreadsPerBlock = 1024;
  p->maxThreadsPerMultiProcessor = 2048;
  p->sharedMemPerBlock = kStaticShared;
  p->sharedMemPerBlockOptin = kSharedBytes;
  p->sharedMemPerMultiprocessor = 228 * 1024;
  p->regsPerBlock = p->regsPerMultiprocessor = 65536;
  p->l2CacheSize = 60 << 20;
  p->totalGlobalMem = options().memory;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  const Call call("cudaDeviceGetAttribute", __builtin_return_address(0));
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount: *value = 132; break;
    case cudaDevAttrComputeCapabilityMajor: *value = 9; break;
    case cudaDevAttrComputeCapabilityMinor: *value = 0; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = static_cast<int>(kSharedBytes); break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = 228 * 1024; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = 2048; break;
    case cudaDevAttrL2CacheSize: *value = 60 << 20; break;
    default:
      return refuse(cudaErrorInvalidValue, "cudaDeviceGetAttribute: the emulation does not know attribute " +
                                               std::to_string(static_cast<int>(attribute)));
  }
  return cudaSuccess;
}

}  // extern "C"
