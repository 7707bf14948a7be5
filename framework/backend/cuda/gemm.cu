// Matrix products by cuBLAS, which is column-major: a row-major C = A B is a column-major C^T = B^T A^T, so
// the operands are swapped and no data is moved. In f32, a bias is the epilogue of a cuBLASLt product. In
// f64, which has no such epilogue, in batches, and if cuBLASLt has no algorithm, the bias is written to C
// first.
#include <array>
#include <map>
#include <tuple>

#include "bonsai/framework/backend/cuda/loops.h"

namespace bonsai::cuda::BONSAI_LEVEL {
namespace {

// C = alpha op(A) op(B) + beta C for `count` matrices; the steps are the strides between them.
struct Product {
  int m, n, k;
  const real* a;
  int lda;
  bool a_transposed;
  int64_t a_step;
  const real* b;
  int ldb;
  bool b_transposed;
  int64_t b_step;
  real* c;
  int ldc;
  int64_t c_step;
  int count;
};

cublasOperation_t op(bool transposed) { return transposed ? CUBLAS_OP_T : CUBLAS_OP_N; }

constexpr auto run_blas = [] {
  if constexpr (sizeof(real) == 4) return cublasSgemmStridedBatched;
  else return cublasDgemmStridedBatched;
}();

void multiply(const Product& p, real alpha, bool add) {
  const real beta = add ? 1 : 0;
  gpu::check(cublasSetMathMode(blas(), tf32() ? CUBLAS_TF32_TENSOR_OP_MATH : CUBLAS_DEFAULT_MATH),
             "cublasSetMathMode");
  gpu::check(run_blas(blas(), op(p.b_transposed), op(p.a_transposed), p.n, p.m, p.k, &alpha, p.b, p.ldb,
                      p.b_step, p.a, p.lda, p.a_step, &beta, p.c, p.ldc, p.c_step, p.count),
             "cublasGemmStridedBatched");
  gpu::called("cublasGemmStridedBatched");
}

// The descriptors and the algorithm of a product. They are cached, because training repeats its shapes.
struct Plan {
  cublasLtMatmulDesc_t product{};
  cublasLtMatrixLayout_t a{}, b{}, c{};
  cublasLtMatmulAlgo_t algorithm{};
  bool usable = false;  // whether cuBLASLt has an algorithm
};

// Alignments in bytes of A, B and C as passed to cuBLASLt, whose algorithms may need up to 256.
std::array<uint32_t, 3> alignments(const Product& p) {
  std::array<uint32_t, 3> bytes{};
  const void* const matrices[] = {p.b, p.a, p.c};
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = uint32_t{1} << __builtin_ctzll(reinterpret_cast<uintptr_t>(matrices[i]) | 256);
  return bytes;
}

template <class T>
void set(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  gpu::check(cublasLtMatmulDescSetAttribute(product, attribute, &value, sizeof value),
             "cublasLtMatmulDescSetAttribute");
}

cublasLtMatrixLayout_t layout(bool transposed, int rows, int columns, int ld) {
  cublasLtMatrixLayout_t l{};
  gpu::check(cublasLtMatrixLayoutCreate(&l, CUDA_R_32F, static_cast<uint64_t>(transposed ? columns : rows),
                                        static_cast<uint64_t>(transposed ? rows : columns), ld),
             "cublasLtMatrixLayoutCreate");
  return l;
}

template <class T>
void prefer(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
            const T& value) {
  gpu::check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value),
             "cublasLtMatmulPreferenceSetAttribute");
}

// Chooses an algorithm for matrices with these alignments, if there is one.
void choose_algorithm(Plan& plan, const std::array<uint32_t, 3>& bytes) {
  cublasLtMatmulPreference_t preference{};
  gpu::check(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  prefer(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspace);
  prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, bytes[0]);
  prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, bytes[1]);
  prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, bytes[2]);
  prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, bytes[2]);
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(blas_lt(), plan.product, plan.a, plan.b,
                                                               plan.c, plan.c, preference, 1, &found, &count);
  if (status != CUBLAS_STATUS_NOT_SUPPORTED) gpu::check(status, "cublasLtMatmulAlgoGetHeuristic");
  gpu::check(cublasLtMatmulPreferenceDestroy(preference), "cublasLtMatmulPreferenceDestroy");
  plan.algorithm = found.algo;
  plan.usable = status == CUBLAS_STATUS_SUCCESS && count > 0 && found.state == CUBLAS_STATUS_SUCCESS;
}

Plan make_plan(const Product& p, const std::array<uint32_t, 3>& bytes) {
  Plan plan;
  gpu::check(cublasLtMatmulDescCreate(&plan.product,
                                      tf32() ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F),
             "cublasLtMatmulDescCreate");
  set(plan.product, CUBLASLT_MATMUL_DESC_TRANSA, op(p.b_transposed));
  set(plan.product, CUBLASLT_MATMUL_DESC_TRANSB, op(p.a_transposed));
  set(plan.product, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
  plan.a = layout(p.b_transposed, p.n, p.k, p.ldb);
  plan.b = layout(p.a_transposed, p.k, p.m, p.lda);
  plan.c = layout(false, p.n, p.m, p.ldc);
  choose_algorithm(plan, bytes);
  return plan;
}

// Returns false, and does nothing, if cuBLASLt has no algorithm.
bool multiply_with_bias(const Product& p, real alpha, bool add, const real* bias) {
  using Key = std::tuple<int, int, int, int, int, int, bool, bool, bool, std::array<uint32_t, 3>>;
  static auto& plans = *new std::map<Key, Plan>;
  const std::array<uint32_t, 3> bytes = alignments(p);
  const Key key(p.m, p.n, p.k, p.lda, p.ldb, p.ldc, p.a_transposed, p.b_transposed, tf32(), bytes);
  auto at = plans.find(key);
  if (at == plans.end()) at = plans.emplace(key, make_plan(p, bytes)).first;
  const Plan& plan = at->second;
  if (!plan.usable) return false;
  const real beta = add ? 1 : 0;
  set(plan.product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  gpu::check(cublasLtMatmul(blas_lt(), plan.product, &alpha, p.b, plan.a, p.a, plan.b, &beta, p.c, plan.c,
                            p.c, plan.c, &plan.algorithm, workspace(), kWorkspace, stream()),
             "cublasLtMatmul");
  gpu::called("cublasLtMatmul");
  return true;
}

__global__ void lay_bias(const real* bias, real* c, int64_t n, int64_t ldc, int64_t elements, bool add) {
  const int64_t i = element();
  if (i >= elements) return;
  real& out = c[i / n * ldc + i % n];
  out = (add ? out : real(0)) + (bias ? bias[i % n] : real(0));
}

void lay(const real* bias, real* c, const kernel::Gemm& g, bool add) {
  launch_elements(g.m * g.n, lay_bias, bias, c, g.n, g.ldc, g.m * g.n, add);
}

int at_least_1(int64_t ld) { return ld > 1 ? static_cast<int>(ld) : 1; }

// Some batch axes. Axes of size 1 are dropped; contiguous axes are merged.
struct Batch {
  int rank = 0;
  int64_t count[kernel::Gemm::kBatchAxes], a[kernel::Gemm::kBatchAxes], b[kernel::Gemm::kBatchAxes],
      c[kernel::Gemm::kBatchAxes];
};

// The axes along which products are summed (`adding`), or the other axes.
Batch axes_of(const kernel::Gemm& g, bool adding) {
  Batch batch;
  for (int i = 0; i < kernel::Gemm::kBatchAxes; ++i) {
    if (g.batch[i] == 1 || (g.c_step[i] == 0) != adding) continue;
    const int last = batch.rank - 1;
    if (last >= 0 && batch.a[last] == g.a.step[i] * g.batch[i] && batch.b[last] == g.b.step[i] * g.batch[i] &&
        batch.c[last] == g.c_step[i] * g.batch[i]) {
      batch.count[last] *= g.batch[i];
    } else {
      batch.count[batch.rank++] = g.batch[i];
    }
    const int now = batch.rank - 1;
    batch.a[now] = g.a.step[i], batch.b[now] = g.b.step[i], batch.c[now] = g.c_step[i];
  }
  return batch;
}

// Calls f(a, b, c), the offsets of the operands, for every index of the first `rank` axes.
template <class F>
void for_indices(const Batch& batch, int rank, F f) {
  int64_t all = 1;
  for (int i = 0; i < rank; ++i) all *= batch.count[i];
  for (int64_t index = 0; index < all; ++index) {
    int64_t rest = index, a = 0, b = 0, c = 0;
    for (int i = rank - 1; i >= 0; --i) {
      const int64_t j = rest % batch.count[i];
      rest /= batch.count[i];
      a += j * batch.a[i], b += j * batch.b[i], c += j * batch.c[i];
    }
    f(a, b, c);
  }
}

}  // namespace

// The last axis that is not summed over is one call to cuBLAS; the calls for all other axes run in order.
void gemm(const kernel::Gemm& g) {
  if (g.m == 0 || g.n == 0) return;
  const Batch kept = axes_of(g, false), added = axes_of(g, true);
  const bool strided = kept.rank > 0;
  const int last = kept.rank - 1;
  Product p{static_cast<int>(g.m), static_cast<int>(g.n), static_cast<int>(g.k),
            nullptr, at_least_1(g.a.ld), g.a.transposed, strided ? kept.a[last] : 0,
            nullptr, at_least_1(g.b.ld), g.b.transposed, strided ? kept.b[last] : 0,
            nullptr, at_least_1(g.ldc), strided ? kept.c[last] : 0,
            strided ? static_cast<int>(kept.count[last]) : 1};
  if (p.count == 0) return;
  const auto alpha = static_cast<real>(g.alpha);
  const auto* bias = static_cast<const real*>(g.bias);
  for_indices(kept, strided ? last : 0, [&](int64_t a, int64_t b, int64_t c) {
    real* out = static_cast<real*>(g.c) + c;
    bool add = g.add, begun = false;
    for_indices(added, added.rank, [&](int64_t more_a, int64_t more_b, int64_t) {
      p.a = static_cast<const real*>(g.a.data) + a + more_a;
      p.b = static_cast<const real*>(g.b.data) + b + more_b;
      p.c = out;
      const bool fused = bias && !begun && sizeof(real) == 4 && p.count == 1 && g.k > 0;
      if (!fused || !multiply_with_bias(p, alpha, add, bias)) {
        if (bias && !begun)
          for (int i = 0; i < p.count; ++i) lay(bias, out + i * p.c_step, g, add);
        multiply(p, alpha, add || bias);
      }
      add = begun = true;
    });
    for (int i = 0; i < p.count && !begun; ++i) lay(bias, out + i * p.c_step, g, add);
  });
}

}  // namespace bonsai::cuda::BONSAI_LEVEL
