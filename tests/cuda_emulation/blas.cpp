// cuBLAS: checks the arguments as cuBLAS does, and computes the product.
#include "bonsai/tests/cuda_emulation/product.h"

namespace emulation {
namespace {

struct Handle {
  cudaStream_t stream = nullptr;
  cublasMath_t math = CUBLAS_DEFAULT_MATH;
  cublasPointerMode_t pointers = CUBLAS_POINTER_MODE_HOST;
};
std::vector<Handle*>& handles() {
  static auto& h = *new std::vector<Handle*>;
  return h;
}

// Returns null, and reports, if there is no such handle.
Handle* known(cublasHandle_t h, const char* call) {
  for (Handle* handle : handles())
    if (reinterpret_cast<cublasHandle_t>(handle) == h) return handle;
  refuse_product(CUBLAS_STATUS_NOT_INITIALIZED, std::string(call) + ": no such handle");
  return nullptr;
}

struct Scalars {
  const void *alpha, *beta;
};

double value_of(const void* scalar, cudaDataType type) {
  return type == CUDA_R_64F ? *static_cast<const double*>(scalar)
                            : static_cast<double>(*static_cast<const float*>(scalar));
}

// Requires p's sizes, matrices and type. C and D are the same matrix.
cublasStatus_t gemm(const Handle* handle, Product p, cublasOperation_t ta, cublasOperation_t tb,
                    Scalars scalars, cublasComputeType_t compute, const char* who) {
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  const auto no = [&](cublasStatus_t status, const std::string& why) {
    return refuse_product(status, std::string(who) + ": " + why);
  };
  p.transpose_a = ta != CUBLAS_OP_N;
  p.transpose_b = tb != CUBLAS_OP_N;
  p.d = p.c;
  if (const std::string problem = problem_of(p); !problem.empty())
    return no(CUBLAS_STATUS_INVALID_VALUE, problem);
  const bool f64 = p.type == CUDA_R_64F;
  switch (compute) {
    case CUBLAS_COMPUTE_32F: p.tf32 = handle->math == CUBLAS_TF32_TENSOR_OP_MATH; break;
    case CUBLAS_COMPUTE_32F_PEDANTIC: break;
    case CUBLAS_COMPUTE_32F_FAST_TF32: p.tf32 = true; break;
    case CUBLAS_COMPUTE_64F:
    case CUBLAS_COMPUTE_64F_PEDANTIC:
      if (!f64) return no(CUBLAS_STATUS_NOT_SUPPORTED, "f32 matrices with a compute type of f64");
      break;
    default: return no(CUBLAS_STATUS_NOT_SUPPORTED, "a compute type that the emulation does not know");
  }
  if (f64 && compute != CUBLAS_COMPUTE_64F && compute != CUBLAS_COMPUTE_64F_PEDANTIC)
    return no(CUBLAS_STATUS_NOT_SUPPORTED, "f64 matrices with a compute type of f32");
  if (handle->pointers != CUBLAS_POINTER_MODE_HOST)
    return no(CUBLAS_STATUS_NOT_SUPPORTED, "the emulation takes alpha and beta from the host");
  for (const void* scalar : {scalars.alpha, scalars.beta})
    if (!scalar || in_device_range(reinterpret_cast<uintptr_t>(scalar)))
      return no(CUBLAS_STATUS_INVALID_VALUE, "alpha and beta must be host pointers in this pointer mode");
  p.alpha = value_of(scalars.alpha, p.type);
  p.beta = value_of(scalars.beta, p.type);
  return enqueue_product(p, handle->stream, who);
}

Product product(cudaDataType type, int m, int n, int k, int batch = 1) {
  Product p;
  p.type = type;
  p.m = m;
  p.n = n;
  p.k = k;
  p.batch = batch;
  return p;
}
Matrix matrix(const void* data, int ld, long long stride = 0) {
  return {const_cast<void*>(data), ld, stride};
}

// Returns false, and reports, if the emulation does not support a combination of types.
bool same_types(cudaDataType a, cudaDataType b, cudaDataType c, const char* who) {
  if (a == b && b == c && (a == CUDA_R_32F || a == CUDA_R_64F)) return true;
  refuse_product(CUBLAS_STATUS_NOT_SUPPORTED,
                 std::string(who) + ": the emulation takes three matrices of f32 or of f64");
  return false;
}

}  // namespace
}  // namespace emulation

using namespace emulation;

extern "C" {

cublasStatus_t cublasCreate_v2(cublasHandle_t* h) {
  const Call call("cublasCreate", __builtin_return_address(0));
  handles().push_back(new Handle);
  *h = reinterpret_cast<cublasHandle_t>(handles().back());
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t h) {
  const Call call("cublasDestroy", __builtin_return_address(0));
  Handle* handle = known(h, "cublasDestroy");
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  finish(handle->stream);
  std::erase(handles(), handle);
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream_v2(cublasHandle_t h, cudaStream_t stream) {
  const Call call("cublasSetStream", __builtin_return_address(0));
  Handle* handle = known(h, "cublasSetStream");
  if (!handle || !check_stream(stream)) return CUBLAS_STATUS_NOT_INITIALIZED;
  handle->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetStream_v2(cublasHandle_t h, cudaStream_t* stream) {
  const Call call("cublasGetStream", __builtin_return_address(0));
  const Handle* handle = known(h, "cublasGetStream");
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  *stream = handle->stream;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetMathMode(cublasHandle_t h, cublasMath_t math) {
  const Call call("cublasSetMathMode", __builtin_return_address(0));
  Handle* handle = known(h, "cublasSetMathMode");
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  handle->math = math;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t h, cublasPointerMode_t mode) {
  const Call call("cublasSetPointerMode", __builtin_return_address(0));
  Handle* handle = known(h, "cublasSetPointerMode");
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  handle->pointers = mode;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetAtomicsMode(cublasHandle_t h, cublasAtomicsMode_t) {
  const Call call("cublasSetAtomicsMode", __builtin_return_address(0));
  return known(h, "cublasSetAtomicsMode") ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_INITIALIZED;
}
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t h, void* workspace, size_t bytes) {
  const Call call("cublasSetWorkspace", __builtin_return_address(0));
  if (!known(h, "cublasSetWorkspace")) return CUBLAS_STATUS_NOT_INITIALIZED;
  return check_device(workspace, bytes, "cublasSetWorkspace") ? CUBLAS_STATUS_SUCCESS
                                                              : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasSgemm_v2(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n,
                              int k, const float* alpha, const float* a, int lda, const float* b, int ldb,
                              const float* beta, float* c, int ldc) {
  const Call call("cublasSgemm", __builtin_return_address(0));
  Product p = product(CUDA_R_32F, m, n, k);
  p.a = matrix(a, lda);
  p.b = matrix(b, ldb);
  p.c = matrix(c, ldc);
  return gemm(known(h, "cublasSgemm"), p, ta, tb, {alpha, beta}, CUBLAS_COMPUTE_32F, "cublasSgemm");
}
cublasStatus_t cublasDgemm_v2(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n,
                              int k, const double* alpha, const double* a, int lda, const double* b, int ldb,
                              const double* beta, double* c, int ldc) {
  const Call call("cublasDgemm", __builtin_return_address(0));
  Product p = product(CUDA_R_64F, m, n, k);
  p.a = matrix(a, lda);
  p.b = matrix(b, ldb);
  p.c = matrix(c, ldc);
  return gemm(known(h, "cublasDgemm"), p, ta, tb, {alpha, beta}, CUBLAS_COMPUTE_64F, "cublasDgemm");
}
cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m,
                                         int n, int k, const float* alpha, const float* a, int lda,
                                         long long sa, const float* b, int ldb, long long sb,
                                         const float* beta, float* c, int ldc, long long sc, int batch) {
  const char* who = "cublasSgemmStridedBatched";
  const Call call(who, __builtin_return_address(0));
  Product p = product(CUDA_R_32F, m, n, k, batch);
  p.a = matrix(a, lda, sa);
  p.b = matrix(b, ldb, sb);
  p.c = matrix(c, ldc, sc);
  return gemm(known(h, who), p, ta, tb, {alpha, beta}, CUBLAS_COMPUTE_32F, who);
}
cublasStatus_t cublasDgemmStridedBatched(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m,
                                         int n, int k, const double* alpha, const double* a, int lda,
                                         long long sa, const double* b, int ldb, long long sb,
                                         const double* beta, double* c, int ldc, long long sc, int batch) {
  const char* who = "cublasDgemmStridedBatched";
  const Call call(who, __builtin_return_address(0));
  Product p = product(CUDA_R_64F, m, n, k, batch);
  p.a = matrix(a, lda, sa);
  p.b = matrix(b, ldb, sb);
  p.c = matrix(c, ldc, sc);
  return gemm(known(h, who), p, ta, tb, {alpha, beta}, CUBLAS_COMPUTE_64F, who);
}
cublasStatus_t cublasGemmEx(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
                            const void* alpha, const void* a, cudaDataType type_a, int lda, const void* b,
                            cudaDataType type_b, int ldb, const void* beta, void* c, cudaDataType type_c,
                            int ldc, cublasComputeType_t compute, cublasGemmAlgo_t) {
  const char* who = "cublasGemmEx";
  const Call call(who, __builtin_return_address(0));
  if (!same_types(type_a, type_b, type_c, who)) return CUBLAS_STATUS_NOT_SUPPORTED;
  Product p = product(type_a, m, n, k);
  p.a = matrix(a, lda);
  p.b = matrix(b, ldb);
  p.c = matrix(c, ldc);
  return gemm(known(h, who), p, ta, tb, {alpha, beta}, compute, who);
}
cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m,
                                          int n, int k, const void* alpha, const void* a, cudaDataType type_a,
                                          int lda, long long sa, const void* b, cudaDataType type_b, int ldb,
                                          long long sb, const void* beta, void* c, cudaDataType type_c,
                                          int ldc, long long sc, int batch, cublasComputeType_t compute,
                                          cublasGemmAlgo_t) {
  const char* who = "cublasGemmStridedBatchedEx";
  const Call call(who, __builtin_return_address(0));
  if (!same_types(type_a, type_b, type_c, who)) return CUBLAS_STATUS_NOT_SUPPORTED;
  Product p = product(type_a, m, n, k, batch);
  p.a = matrix(a, lda, sa);
  p.b = matrix(b, ldb, sb);
  p.c = matrix(c, ldc, sc);
  return gemm(known(h, who), p, ta, tb, {alpha, beta}, compute, who);
}

const char* cublasGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
    default: return "CUBLAS_STATUS_OTHER";
  }
}
// Appends the last report, as cudaGetErrorString does.
const char* cublasGetStatusString(cublasStatus_t status) {
  const Call call("cublasGetStatusString");
  static std::string& text = *new std::string;
  text = cublasGetStatusName(status);
  if (status != CUBLAS_STATUS_SUCCESS && !reports().empty()) text += ": " + reports().back();
  return text.c_str();
}

}  // extern "C"
