// Matrix products: operands are packed into panels, and a 16 x 4 micro-kernel accumulates in registers.
#include "bonsai/tests/cuda_emulation/product.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace emulation {
namespace {

constexpr int64_t kColumns = 4;
constexpr size_t kVector = 32;  // bytes
template <class T>
constexpr int64_t kRows = 2 * kVector / sizeof(T);

// The product of a panel of A (k x kRows) and a panel of B (k x kColumns), summed over k.
template <class T>
[[gnu::always_inline]] inline void sum_tile(const T* a, const T* b, int64_t k, T* out) {
  using Vector [[gnu::vector_size(kVector)]] = T;
  constexpr int64_t kHalf = kRows<T> / 2;
  Vector sum[kColumns][2] = {};
  for (int64_t i = 0; i < k; ++i, a += kRows<T>, b += kColumns) {
    Vector low, high;
    std::memcpy(&low, a, kVector);
    std::memcpy(&high, a + kHalf, kVector);
    for (int64_t c = 0; c < kColumns; ++c) {
      sum[c][0] += low * b[c];
      sum[c][1] += high * b[c];
    }
  }
  std::memcpy(out, sum, sizeof sum);
}
template <class T>
void sum_plain(const T* a, const T* b, int64_t k, T* out) {
  sum_tile(a, b, k, out);
}
template <class T>
[[gnu::target("avx2,fma")]] void sum_avx2(const T* a, const T* b, int64_t k, T* out) {
  sum_tile(a, b, k, out);
}

float round_to_tf32(float x) {  // to nearest, ties to even
  uint32_t u = std::bit_cast<uint32_t>(x);
  if ((u & 0x7f800000u) == 0x7f800000u) return x;
  u += 0xfffu + ((u >> 13) & 1u);
  return std::bit_cast<float>(u & ~0x1fffu);
}

// Packs consecutive panels of `width` lines. A line is a row of A or a column of B; its elements are `step`
// apart.
template <class T>
void pack(const T* from, int64_t lines, int64_t line_step, int64_t k, int64_t step, int64_t width, bool tf32,
          T* to) {
  for (int64_t first = 0; first < lines; first += width, to += k * width) {
    const int64_t count = std::min(width, lines - first);
    for (int64_t line = 0; line < width; ++line)
      for (int64_t i = 0; i < k; ++i) {
        T v = line < count ? from[(first + line) * line_step + i * step] : T(0);
        if constexpr (sizeof(T) == 4) v = tf32 ? round_to_tf32(v) : v;
        to[i * width + line] = v;
      }
  }
}

template <class T>
T gelu(T x) {
  return T(0.5) * x * (T(1) + std::tanh(T(0.7978845608028654) * (x + T(0.044715) * x * x * x)));
}

template <class T>
void finish_tile(const Product& p, const T* sum, int64_t row, int64_t column, const T* c, T* d, T* aux) {
  const T* bias = static_cast<const T*>(p.bias);
  for (int64_t j = column; j < std::min(column + kColumns, p.n); ++j)
    for (int64_t i = row; i < std::min(row + kRows<T>, p.m); ++i) {
      T v = static_cast<T>(p.alpha) * sum[(j - column) * kRows<T> + i - row];
      if (p.beta != 0) v += static_cast<T>(p.beta) * c[i + j * p.c.ld];  // if beta = 0, C is not read
      if (bias) v += bias[i];
      if (aux) aux[i + j * p.aux.ld] = v;
      d[i + j * p.d.ld] = p.gelu ? gelu(v) : v;
    }
}

template <class T>
const T* matrix_of(const Matrix& m, int64_t batch) {
  return m.data ? static_cast<const T*>(m.data) + batch * m.stride : nullptr;
}

template <class T>
void multiply(const Product& p) {
  static const auto sum_of =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? sum_avx2<T> : sum_plain<T>;
  const auto up = [](int64_t n, int64_t to) { return (n + to - 1) / to * to; };
  std::vector<T> a(static_cast<size_t>(up(p.m, kRows<T>) * p.k)),
      b(static_cast<size_t>(up(p.n, kColumns) * p.k));
  std::vector<T> sum(static_cast<size_t>(kRows<T> * kColumns));
  for (int64_t i = 0; i < p.batch; ++i) {
    pack(matrix_of<T>(p.a, i), p.m, p.transpose_a ? p.a.ld : 1, p.k, p.transpose_a ? 1 : p.a.ld, kRows<T>,
         p.tf32, a.data());
    pack(matrix_of<T>(p.b, i), p.n, p.transpose_b ? 1 : p.b.ld, p.k, p.transpose_b ? p.b.ld : 1, kColumns,
         p.tf32, b.data());
    for (int64_t column = 0; column < p.n; column += kColumns)
      for (int64_t row = 0; row < p.m; row += kRows<T>) {
        sum_of(a.data() + row * p.k, b.data() + column * p.k, p.k, sum.data());
        finish_tile(p, sum.data(), row, column, matrix_of<T>(p.c, i), const_cast<T*>(matrix_of<T>(p.d, i)),
                    const_cast<T*>(matrix_of<T>(p.aux, i)));
      }
  }
}

size_t size_of(cudaDataType type) { return type == CUDA_R_64F ? 8 : 4; }

// Checks that each matrix of the batch, from its first to its last element, is in device memory.
bool check_matrix(const Product& p, const Matrix& m, int64_t rows, int64_t columns, const std::string& name) {
  if (rows == 0 || columns == 0) return true;
  const auto bytes = static_cast<size_t>((columns - 1) * m.ld + rows) * size_of(p.type);
  for (int64_t i = 0; i < p.batch; ++i) {
    const auto* first =
        static_cast<const char*>(m.data) + i * m.stride * static_cast<int64_t>(size_of(p.type));
    if (!check_device(first, bytes, name.c_str())) return false;
  }
  return true;
}

bool check_matrices(const Product& p, const std::string& who) {
  const int64_t m = p.m, n = p.n, k = p.k;
  return check_matrix(p, p.a, p.transpose_a ? k : m, p.transpose_a ? m : k, who + " A") &&
         check_matrix(p, p.b, p.transpose_b ? n : k, p.transpose_b ? k : n, who + " B") &&
         (p.beta == 0 || check_matrix(p, p.c, m, n, who + " C")) &&
         check_matrix(p, p.d, m, n, who + " output") &&
         (!p.aux.data || check_matrix(p, p.aux, m, n, who + " epilogue's aux")) &&
         (!p.bias || check_device(p.bias, static_cast<size_t>(m) * size_of(p.type), (who + " bias").c_str()));
}

}  // namespace

std::string problem_of(const Product& p) {
  const auto too_small = [](const char* name, int64_t ld, int64_t rows) {
    return std::string("the leading dimension of ") + name + " is " + std::to_string(ld) +
           ", less than its " + std::to_string(rows) + " rows";
  };
  const int64_t rows_a = p.transpose_a ? p.k : p.m, rows_b = p.transpose_b ? p.n : p.k;
  if (p.m < 0 || p.n < 0 || p.k < 0 || p.batch < 0) return "a negative size";
  if (p.a.ld < std::max<int64_t>(1, rows_a)) return too_small("A", p.a.ld, rows_a);
  if (p.b.ld < std::max<int64_t>(1, rows_b)) return too_small("B", p.b.ld, rows_b);
  if (p.c.ld < std::max<int64_t>(1, p.m)) return too_small("C", p.c.ld, p.m);
  if (p.d.ld < std::max<int64_t>(1, p.m)) return too_small("D", p.d.ld, p.m);
  if (p.batch > 1 && p.d.stride == 0) return "the outputs of the batch overlap: their stride is 0";
  return "";
}

cublasStatus_t refuse_product(cublasStatus_t status, const std::string& problem) {
  refuse(cudaErrorInvalidValue, problem);
  set_last(cudaSuccess);  // errors of cuBLAS do not set the runtime's last error
  return status;
}

cublasStatus_t enqueue_product(const Product& p, cudaStream_t stream, const char* who) {
  if (p.m == 0 || p.n == 0 || p.batch == 0) return CUBLAS_STATUS_SUCCESS;
  if (broken() || !check_matrices(p, who)) return CUBLAS_STATUS_EXECUTION_FAILED;
  if (const std::string problem = problem_of_device(stream); !problem.empty())
    return refuse_product(CUBLAS_STATUS_EXECUTION_FAILED, std::string(who) + ": " + problem);
  const cudaError_t status = enqueue(stream, [p, who = std::string(who)] {
    if (!check_matrices(p, who)) return;
    const Open open;
    if (p.type == CUDA_R_64F)
      multiply<double>(p);
    else
      multiply<float>(p);
  });
  return status == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // namespace emulation
