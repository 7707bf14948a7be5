// cuBLASLt: descriptors, and a product with an epilogue. Rejects what the real library rejects: f64 with an
// epilogue, inconsistent sizes, attributes of the wrong size.
#include <cublasLt.h>

#include <array>
#include <cstring>
#include <new>
#include <optional>

#include "bonsai/tests/cuda_emulation/product.h"

namespace emulation {
namespace {

// The emulation's descriptors are stored in the library's opaque structs, which are large enough.
struct Description {
  cublasComputeType_t compute;
  cudaDataType scale;
  cublasOperation_t a = CUBLAS_OP_N, b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  void* aux = nullptr;
  int64_t aux_ld = 0, aux_stride = 0;
};
struct Layout {
  cudaDataType type;
  int32_t order = CUBLASLT_ORDER_COL, batch = 1;
  uint64_t rows, columns;
  int64_t ld, stride = 0;
};
// Alignments of A, B, C and D in bytes.
struct Alignments {
  std::array<uint32_t, 4> bytes{256, 256, 256, 256};
};
struct Preference {
  uint64_t workspace = 0;
  Alignments alignments;
};
struct Algorithm {
  uint64_t mark = 0;  // kFound if the heuristic returned it
  Alignments alignments;
};
constexpr uint64_t kFound = 0x616c676f;
static_assert(sizeof(Description) <= sizeof(cublasLtMatmulDescOpaque_t) &&
              sizeof(Layout) <= sizeof(cublasLtMatrixLayoutOpaque_t) &&
              sizeof(Preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t) &&
              sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

template <class Mine, class Theirs>
Mine& in(Theirs* opaque) {
  return *reinterpret_cast<Mine*>(opaque);
}

char lt_handle;  // the only handle

cublasStatus_t no(cublasStatus_t status, const std::string& why) {
  return refuse_product(status, "cublasLt" + why);
}

// Copies an attribute after checking its size.
template <class T>
cublasStatus_t set(T& value, const void* from, size_t bytes, const char* call) {
  if (!from || bytes != sizeof(T))
    return no(CUBLAS_STATUS_INVALID_VALUE, std::string(call) + ": an attribute of " +
                                               std::to_string(sizeof(T)) + " bytes is set from " +
                                               std::to_string(bytes));
  std::memcpy(&value, from, sizeof(T));
  return CUBLAS_STATUS_SUCCESS;
}

bool has_bias(cublasLtEpilogue_t e) { return (e & CUBLASLT_EPILOGUE_BIAS) != 0; }
bool has_gelu(cublasLtEpilogue_t e) { return (e & CUBLASLT_EPILOGUE_GELU) != 0; }
bool has_aux(cublasLtEpilogue_t e) { return (e & 128) != 0; }
bool known(cublasLtEpilogue_t e) {
  constexpr std::array all{CUBLASLT_EPILOGUE_DEFAULT,  CUBLASLT_EPILOGUE_BIAS,
                           CUBLASLT_EPILOGUE_GELU,     CUBLASLT_EPILOGUE_GELU_BIAS,
                           CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_GELU_AUX_BIAS};
  for (const auto one : all)
    if (one == e) return true;
  return false;
}

struct Layouts {
  const Layout &a, &b, &c, &d;
};

// Why this combination of types is not supported; empty if it is.
const char* unsupported(const Description& o, const Layouts& l) {
  const cudaDataType type = l.a.type;
  const bool f64 = type == CUDA_R_64F;
  if ((type != CUDA_R_32F && !f64) || l.b.type != type || l.c.type != type || l.d.type != type ||
      o.scale != type)
    return "the emulation takes matrices and scalars of one type, f32 or f64";
  const bool compute_f64 = o.compute == CUBLAS_COMPUTE_64F || o.compute == CUBLAS_COMPUTE_64F_PEDANTIC;
  const bool compute_f32 = o.compute == CUBLAS_COMPUTE_32F || o.compute == CUBLAS_COMPUTE_32F_FAST_TF32 ||
                           o.compute == CUBLAS_COMPUTE_32F_PEDANTIC;
  if (f64 ? !compute_f64 : !compute_f32) return "the compute type does not fit the matrices";
  if (!known(o.epilogue)) return "an epilogue that the emulation does not know";
  if (f64 && o.epilogue != CUBLASLT_EPILOGUE_DEFAULT) return "f64 has no epilogue but DEFAULT";
  for (const Layout* one : {&l.a, &l.b, &l.c, &l.d})
    if (one->order != CUBLASLT_ORDER_COL) return "the emulation takes column-major matrices";
  return nullptr;
}

// The product that the descriptors describe, or nothing if their sizes are inconsistent.
std::optional<Product> product_of(const Description& o, const Layouts& l, std::string& problem) {
  const auto size = [](uint64_t n) { return static_cast<int64_t>(n); };
  Product p;
  p.type = l.a.type;
  p.transpose_a = o.a != CUBLAS_OP_N;
  p.transpose_b = o.b != CUBLAS_OP_N;
  p.m = size(l.d.rows);
  p.n = size(l.d.columns);
  p.k = size(p.transpose_a ? l.a.rows : l.a.columns);
  p.batch = l.d.batch;
  const int64_t m = size(p.transpose_a ? l.a.columns : l.a.rows),
                k = size(p.transpose_b ? l.b.columns : l.b.rows);
  const int64_t n = size(p.transpose_b ? l.b.rows : l.b.columns);
  if (m != p.m || n != p.n || k != p.k || size(l.c.rows) != p.m || size(l.c.columns) != p.n)
    problem = "sizes do not fit together: op(A) " + std::to_string(m) + "x" + std::to_string(p.k) +
              ", op(B) " + std::to_string(k) + "x" + std::to_string(n) + ", D " + std::to_string(p.m) + "x" +
              std::to_string(p.n);
  else if (l.a.batch != p.batch || l.b.batch != p.batch || l.c.batch != p.batch)
    problem = "layouts with different batch counts";
  p.a = {nullptr, l.a.ld, l.a.stride};
  p.b = {nullptr, l.b.ld, l.b.stride};
  p.c = {nullptr, l.c.ld, l.c.stride};
  p.d = {nullptr, l.d.ld, l.d.stride};
  if (problem.empty()) problem = problem_of(p);
  if (!problem.empty()) return std::nullopt;
  p.tf32 = o.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  p.gelu = has_gelu(o.epilogue);
  if (has_bias(o.epilogue)) p.bias = o.bias;
  if (has_aux(o.epilogue)) p.aux = {o.aux, o.aux_ld, o.aux_stride};
  return p;
}

// An algorithm reads and writes vectors as wide as the alignments for which it was found.
std::string problem_of_algorithm(const Algorithm& chosen, const std::array<const void*, 4>& matrices) {
  if (chosen.mark != kFound) return "an algorithm that no heuristic has found";
  for (size_t i = 0; i < matrices.size(); ++i)
    if (const uint32_t bytes = chosen.alignments.bytes[i];
        reinterpret_cast<uintptr_t>(matrices[i]) % bytes != 0)
      return std::string(1, "ABCD"[i]) + " is not aligned to the " + std::to_string(bytes) +
             " bytes for which its algorithm was found";
  return "";
}

std::string problem_of_epilogue(const Description& o, const Product& p) {
  if (has_bias(o.epilogue) && !o.bias) return "an epilogue with a bias, but no BIAS_POINTER";
  if (!has_aux(o.epilogue)) return "";
  if (!o.aux) return "an epilogue that keeps its input, but no EPILOGUE_AUX_POINTER";
  if (o.aux_ld < p.m || o.aux_ld % 8 != 0)
    return "EPILOGUE_AUX_LD must be a multiple of 8 and at least D's rows";
  if (reinterpret_cast<uintptr_t>(o.aux) % 16 != 0) return "EPILOGUE_AUX_POINTER must be aligned to 16 bytes";
  return "";
}

}  // namespace
}  // namespace emulation

using namespace emulation;

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* h) {
  *h = reinterpret_cast<cublasLtHandle_t>(&lt_handle);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; }

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t desc, size_t size,
                                               cublasComputeType_t compute, cudaDataType_t scale) {
  if (size < sizeof(Description)) return CUBLAS_STATUS_ALLOC_FAILED;
  new (desc) Description{compute, scale};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  *desc = new cublasLtMatmulDescOpaque_t;
  return cublasLtMatmulDescInit_internal(*desc, sizeof **desc, compute, scale);
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  delete desc;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute, const void* value,
                                              size_t bytes) {
  const Call call("cublasLtMatmulDescSetAttribute", __builtin_return_address(0));
  const char* who = "MatmulDescSetAttribute";
  auto& d = in<Description>(desc);
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return set(d.a, value, bytes, who);
    case CUBLASLT_MATMUL_DESC_TRANSB: return set(d.b, value, bytes, who);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return set(d.epilogue, value, bytes, who);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return set(d.bias, value, bytes, who);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER: return set(d.aux, value, bytes, who);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: return set(d.aux_ld, value, bytes, who);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE: return set(d.aux_stride, value, bytes, who);
    default:
      return no(CUBLAS_STATUS_NOT_SUPPORTED, std::string(who) + ": the emulation does not know attribute " +
                                                 std::to_string(static_cast<int>(attribute)));
  }
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout, size_t size,
                                                 cudaDataType type, uint64_t rows, uint64_t columns,
                                                 int64_t ld) {
  if (size < sizeof(Layout)) return CUBLAS_STATUS_ALLOC_FAILED;
  new (layout) Layout{.type = type, .rows = rows, .columns = columns, .ld = ld};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t ld) {
  *layout = new cublasLtMatrixLayoutOpaque_t;
  return cublasLtMatrixLayoutInit_internal(*layout, sizeof **layout, type, rows, columns, ld);
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                                                size_t bytes) {
  const Call call("cublasLtMatrixLayoutSetAttribute", __builtin_return_address(0));
  const char* who = "MatrixLayoutSetAttribute";
  auto& l = in<Layout>(layout);
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_ORDER: return set(l.order, value, bytes, who);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: return set(l.batch, value, bytes, who);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: return set(l.stride, value, bytes, who);
    default:
      return no(CUBLAS_STATUS_NOT_SUPPORTED, std::string(who) + ": the emulation does not know attribute " +
                                                 std::to_string(static_cast<int>(attribute)));
  }
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t preference, size_t size) {
  if (size < sizeof(Preference)) return CUBLAS_STATUS_ALLOC_FAILED;
  new (preference) Preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new cublasLtMatmulPreferenceOpaque_t;
  return cublasLtMatmulPreferenceInit_internal(*preference, sizeof **preference);
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
  const Call call("cublasLtMatmulPreferenceSetAttribute", __builtin_return_address(0));
  const char* who = "MatmulPreferenceSetAttribute";
  auto& p = in<Preference>(preference);
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return set(p.workspace, value, bytes, who);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: return set(p.alignments.bytes[0], value, bytes, who);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: return set(p.alignments.bytes[1], value, bytes, who);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: return set(p.alignments.bytes[2], value, bytes, who);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: return set(p.alignments.bytes[3], value, bytes, who);
    default: return CUBLAS_STATUS_SUCCESS;
  }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[], int* found) {
  const Call call("cublasLtMatmulAlgoGetHeuristic", __builtin_return_address(0));
  *found = 0;
  if (!desc || !a || !b || !c || !d || !preference || !results || wanted < 1)
    return no(CUBLAS_STATUS_INVALID_VALUE, "MatmulAlgoGetHeuristic: an argument is missing");
  const Layouts layouts{in<Layout>(a), in<Layout>(b), in<Layout>(c), in<Layout>(d)};
  std::string problem;
  if (const char* why = unsupported(in<Description>(desc), layouts))
    return no(CUBLAS_STATUS_NOT_SUPPORTED, std::string("MatmulAlgoGetHeuristic: ") + why);
  if (!product_of(in<Description>(desc), layouts, problem))
    return no(CUBLAS_STATUS_INVALID_VALUE, "MatmulAlgoGetHeuristic: " + problem);
  if (options().algorithms == Algorithms::none) return CUBLAS_STATUS_NOT_SUPPORTED;
  results[0] = {};  // does not need a workspace
  *found = 1;
  if (options().algorithms == Algorithms::unusable)
    results[0].state = CUBLAS_STATUS_NOT_SUPPORTED;
  else
    in<Algorithm>(&results[0].algo) = {kFound, in<Preference>(preference).alignments};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t h, cublasLtMatmulDesc_t desc, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t layout_a, const void* b, cublasLtMatrixLayout_t layout_b,
                              const void* beta, const void* c, cublasLtMatrixLayout_t layout_c, void* d,
                              cublasLtMatrixLayout_t layout_d, const cublasLtMatmulAlgo_t* algorithm,
                              void* workspace, size_t bytes, cudaStream_t stream) {
  const Call call("cublasLtMatmul", __builtin_return_address(0));
  if (h != reinterpret_cast<cublasLtHandle_t>(&lt_handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!desc || !layout_a || !layout_b || !layout_c || !layout_d || !alpha || !beta)
    return no(CUBLAS_STATUS_INVALID_VALUE, "Matmul: an argument is missing");
  const auto& description = in<Description>(desc);
  const Layouts layouts{in<Layout>(layout_a), in<Layout>(layout_b), in<Layout>(layout_c),
                        in<Layout>(layout_d)};
  if (const char* why = unsupported(description, layouts))
    return no(CUBLAS_STATUS_NOT_SUPPORTED, std::string("Matmul: ") + why);
  std::string problem;
  std::optional<Product> p = product_of(description, layouts, problem);
  if (p) problem = problem_of_epilogue(description, *p);
  if (problem.empty() && algorithm)
    problem = problem_of_algorithm(in<const Algorithm>(algorithm), {a, b, c, d});
  for (const void* scalar : {alpha, beta})
    if (in_device_range(reinterpret_cast<uintptr_t>(scalar)))
      problem = "alpha and beta must be host pointers";
  if (!problem.empty()) return no(CUBLAS_STATUS_INVALID_VALUE, "Matmul: " + problem);
  if (workspace && !check_device(workspace, bytes, "cublasLtMatmul workspace"))
    return CUBLAS_STATUS_INVALID_VALUE;
  const bool f64 = p->type == CUDA_R_64F;
  p->alpha =
      f64 ? *static_cast<const double*>(alpha) : static_cast<double>(*static_cast<const float*>(alpha));
  p->beta = f64 ? *static_cast<const double*>(beta) : static_cast<double>(*static_cast<const float*>(beta));
  p->a.data = const_cast<void*>(a);
  p->b.data = const_cast<void*>(b);
  p->c.data = const_cast<void*>(c);
  p->d.data = d;
  return enqueue_product(*p, stream, "cublasLtMatmul");
}

}  // extern "C"
