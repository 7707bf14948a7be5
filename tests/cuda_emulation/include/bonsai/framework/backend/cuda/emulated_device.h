// nvcc's built-ins for a host compiler: indices, barriers, warp operations, atomics, intrinsics. Types, enums
// and prototypes come from the toolkit's headers, so they cannot differ.
#pragma once

#include <cuda_runtime.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __constant__
#undef __launch_bounds__
#undef __grid_constant__
#define __global__
#define __device__
#define __host__
#define __shared__ \
  static  // blocks run one after another; prefer GPU_SHARED, which is poisoned for each block and has gaps
#define __constant__ static
#define __launch_bounds__(...)
#define __grid_constant__

#define EMULATION_HIDDEN \
  __attribute__((visibility("hidden")))  // kernels and emulator are in one library, so the PLT is not needed
// Set for the running thread.
extern EMULATION_HIDDEN uint3 threadIdx, blockIdx;
extern EMULATION_HIDDEN dim3 blockDim, gridDim;
inline constexpr int warpSize = 32;

namespace emulation {

// A source line of a kernel; as a default argument, the caller's line.
struct Place {
  const char* file;
  int line;
  static constexpr Place here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
  bool operator==(const Place& other) const { return line == other.line && file == other.file; }
};

enum class Operation : unsigned char { shfl, shfl_up, shfl_down, shfl_xor, ballot, any, all, syncwarp };

// A launch by launch.h. The arguments are copied if the launch is queued.
struct Shape {
  dim3 grid, block;
  std::size_t smem;
  cudaStream_t stream;
};
struct Kernel {
  const void* function;
  const void* from;  // the launching code
  void (*run)(void* arguments);
  void* (*copy)(const void* arguments);
  void (*drop)(void* arguments);
  void* arguments;
};
EMULATION_HIDDEN cudaError_t launch(const Shape& shape, const Kernel& kernel);
EMULATION_HIDDEN bool check_pointer(const void* p, int index, const Kernel& kernel);
EMULATION_HIDDEN bool check_struct(const void* bytes, std::size_t size, int index, const Kernel& kernel);
EMULATION_HIDDEN void* shared_array(const void* key, std::size_t bytes, std::size_t align);
EMULATION_HIDDEN void* dynamic_shared();

// The number of threads of the block whose vote at this barrier was not zero.
EMULATION_HIDDEN int block_barrier(bool vote, Place place);
EMULATION_HIDDEN std::uint64_t warp_operation(Operation op, unsigned mask, std::uint64_t value, int argument,
                                              int width, Place place);
EMULATION_HIDDEN unsigned lanes_left();
[[noreturn]] EMULATION_HIDDEN void trap(Place place);

template <class T>
T shuffle(Operation op, unsigned mask, T value, int argument, int width, Place place) {
  static_assert(std::is_trivially_copyable_v<T> && (sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8));
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = warp_operation(op, mask, bits, argument, width, place);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

// Atomic, because only one thread runs at a time and threads are not preempted.
template <class T, class F>
T read_modify_write(T* p, F next) {
  const T old = *p;
  *p = static_cast<T>(next(old));
  return old;
}

}  // namespace emulation

// Synchronisation.
inline void __syncthreads(emulation::Place p = emulation::Place::here()) {
  emulation::block_barrier(false, p);
}
inline int __syncthreads_count(int vote, emulation::Place p = emulation::Place::here()) {
  return emulation::block_barrier(vote != 0, p);
}
inline int __syncthreads_or(int vote, emulation::Place p = emulation::Place::here()) {
  return emulation::block_barrier(vote != 0, p) != 0;
}
inline int __syncthreads_and(int vote, emulation::Place p = emulation::Place::here()) {
  return emulation::block_barrier(vote == 0, p) == 0;
}
inline void __syncwarp(unsigned mask = 0xffffffffu, emulation::Place p = emulation::Place::here()) {
  emulation::warp_operation(emulation::Operation::syncwarp, mask, 0, 0, 32, p);
}
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}
inline void __trap(emulation::Place p = emulation::Place::here()) { emulation::trap(p); }

// Warp operations.
template <class T>
T __shfl_sync(unsigned mask, T v, int lane, int width = 32, emulation::Place p = emulation::Place::here()) {
  return emulation::shuffle(emulation::Operation::shfl, mask, v, lane, width, p);
}
template <class T>
T __shfl_up_sync(unsigned mask, T v, unsigned by, int width = 32,
                 emulation::Place p = emulation::Place::here()) {
  return emulation::shuffle(emulation::Operation::shfl_up, mask, v, static_cast<int>(by), width, p);
}
template <class T>
T __shfl_down_sync(unsigned mask, T v, unsigned by, int width = 32,
                   emulation::Place p = emulation::Place::here()) {
  return emulation::shuffle(emulation::Operation::shfl_down, mask, v, static_cast<int>(by), width, p);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T v, int bits, int width = 32,
                  emulation::Place p = emulation::Place::here()) {
  return emulation::shuffle(emulation::Operation::shfl_xor, mask, v, bits, width, p);
}
inline unsigned __ballot_sync(unsigned mask, int vote, emulation::Place p = emulation::Place::here()) {
  return static_cast<unsigned>(
      emulation::warp_operation(emulation::Operation::ballot, mask, vote != 0, 0, 32, p));
}
inline int __any_sync(unsigned mask, int vote, emulation::Place p = emulation::Place::here()) {
  return static_cast<int>(emulation::warp_operation(emulation::Operation::any, mask, vote != 0, 0, 32, p));
}
inline int __all_sync(unsigned mask, int vote, emulation::Place p = emulation::Place::here()) {
  return static_cast<int>(emulation::warp_operation(emulation::Operation::all, mask, vote != 0, 0, 32, p));
}
inline unsigned __activemask() { return emulation::lanes_left(); }

// Atomics.
template <class T>
T atomicAdd(T* p, std::type_identity_t<T> v) {
  return emulation::read_modify_write(p, [v](T old) { return old + v; });
}
template <class T>
T atomicSub(T* p, std::type_identity_t<T> v) {
  return emulation::read_modify_write(p, [v](T old) { return old - v; });
}
template <class T>
T atomicMax(T* p, std::type_identity_t<T> v) {
  return emulation::read_modify_write(p, [v](T old) { return old < v ? v : old; });
}
template <class T>
T atomicMin(T* p, std::type_identity_t<T> v) {
  return emulation::read_modify_write(p, [v](T old) { return v < old ? v : old; });
}
template <class T>
T atomicAnd(T* p, std::type_identity_t<T> v) {
  return emulation::read_modify_write(p, [v](T old) { return old & v; });
}
template <class T>
T atomicOr(T* p, std::type_identity_t<T> v) {
  return emulation::read_modify_write(p, [v](T old) { return old | v; });
}
template <class T>
T atomicXor(T* p, std::type_identity_t<T> v) {
  return emulation::read_modify_write(p, [v](T old) { return old ^ v; });
}
template <class T>
T atomicExch(T* p, std::type_identity_t<T> v) {
  return emulation::read_modify_write(p, [v](T) { return v; });
}
template <class T>
T atomicCAS(T* p, std::type_identity_t<T> expected, std::type_identity_t<T> v) {
  return emulation::read_modify_write(p, [expected, v](T old) { return old == expected ? v : old; });
}
inline unsigned atomicInc(unsigned* p, unsigned last) {
  return emulation::read_modify_write(p, [last](unsigned old) { return old >= last ? 0 : old + 1; });
}

// Arithmetic. The fast versions are as accurate here as the others.
inline float __expf(float x) { return std::exp2(x * 1.4426950408889634f); }
inline float __logf(float x) { return std::log(x); }
inline float __log2f(float x) { return std::log2(x); }
inline float __sinf(float x) { return std::sin(x); }
inline float __cosf(float x) { return std::cos(x); }
inline float __powf(float x, float y) { return std::pow(x, y); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline float __frsqrt_rn(float x) { return 1.0f / std::sqrt(x); }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }
inline float __saturatef(float x) { return x > 1.0f ? 1.0f : x > 0.0f ? x : 0.0f; }

// Bits.
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __clzll(long long x) { return std::countl_zero(static_cast<unsigned long long>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>((static_cast<std::uint64_t>(a) * b) >> 32);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<unsigned long long>((static_cast<Wide>(a) * b) >> 64);
}

// Loads and stores with cache hints, which have no effect here.
template <class T>
T __ldg(const T* p) {
  return *p;
}
template <class T>
T __ldcs(const T* p) {
  return *p;
}
template <class T>
T __ldcg(const T* p) {
  return *p;
}
template <class T>
void __stcs(T* p, std::type_identity_t<T> v) {
  *p = v;
}
template <class T>
void __stcg(T* p, std::type_identity_t<T> v) {
  *p = v;
}

template <class A, class B>
constexpr auto min(A a, B b) -> std::common_type_t<A, B> {
  using C = std::common_type_t<A, B>;
  return static_cast<C>(b) < static_cast<C>(a) ? static_cast<C>(b) : static_cast<C>(a);
}
template <class A, class B>
constexpr auto max(A a, B b) -> std::common_type_t<A, B> {
  using C = std::common_type_t<A, B>;
  return static_cast<C>(a) < static_cast<C>(b) ? static_cast<C>(b) : static_cast<C>(a);
}
