// The emulated cuBLAS and cuBLASLt against plain sums: every transposition, batches, scalars, epilogues, and
// the calls that they must reject as the real libraries do.
#include <cublasLt.h>
#include <cublas_v2.h>
#include <gtest/gtest.h>

#include <cmath>
#include <type_traits>

#include "bonsai/tests/cuda_emulation/device_array.h"
#include "bonsai/tests/cuda_emulation/emulation.h"

namespace {

using emulation::test::DeviceArray;

template <class T>
constexpr cudaDataType kType = std::is_same_v<T, double> ? CUDA_R_64F : CUDA_R_32F;
template <class T>
constexpr cublasComputeType_t kCompute = std::is_same_v<T, double> ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F;

template <class T>
std::vector<T> numbers(size_t n, unsigned seed) {
  std::vector<T> v(n);
  for (T& x : v)
    x = static_cast<T>(static_cast<double>((seed = seed * 1664525u + 1013904223u) >> 8) / 8388608.0 - 1.0);
  return v;
}

struct Sizes {
  int m, n, k;
};
struct Form {
  bool ta, tb;
  int lda, ldb, ldc;
};

// Column-major, with padding between columns.
Form form_of(const Sizes& s, bool ta, bool tb) {
  return {ta, tb, (ta ? s.k : s.m) + 1, (tb ? s.n : s.k) + 2, s.m + 3};
}

template <class T>
std::vector<T> plain(const Sizes& s, const Form& f, T alpha, const T* a, const T* b, T beta,
                     std::vector<T> c) {
  for (int i = 0; i < s.m; ++i)
    for (int j = 0; j < s.n; ++j) {
      double sum = 0;
      for (int p = 0; p < s.k; ++p)
        sum += static_cast<double>(a[f.ta ? p + i * f.lda : i + p * f.lda]) *
               static_cast<double>(b[f.tb ? j + p * f.ldb : p + j * f.ldb]);
      T& out = c[static_cast<size_t>(i + j * f.ldc)];
      out = static_cast<T>(alpha * sum + (beta == 0 ? 0.0 : static_cast<double>(beta * out)));
    }
  return c;
}

template <class T>
void expect_near(const std::vector<T>& a, const std::vector<T>& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], tolerance) << "at " << i;
}

template <class T>
class EmulatedProducts : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(cublasCreate(&blas_), CUBLAS_STATUS_SUCCESS); }
  void TearDown() override {
    EXPECT_EQ(cublasDestroy(blas_), CUBLAS_STATUS_SUCCESS);
    EXPECT_STREQ(bonsai_emulation_errors(), "");
  }
  static constexpr double kTolerance = std::is_same_v<T, double> ? 1e-13 : 2e-5;
  cublasHandle_t blas_ = nullptr;
};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(EmulatedProducts, Types);

TYPED_TEST(EmulatedProducts, every_transposition) {
  using T = TypeParam;
  for (const Sizes s :
       {Sizes{1, 1, 1}, Sizes{5, 3, 7}, Sizes{16, 4, 8}, Sizes{17, 5, 9}, Sizes{33, 70, 64}, Sizes{3, 2, 0}})
    for (const int transposed : {0, 1, 2, 3})
      for (const T beta : {T(0), T(0.5)}) {
        const Form f = form_of(s, transposed & 1, transposed & 2);
        const auto a = numbers<T>(static_cast<size_t>(f.lda * (f.ta ? s.m : s.k) + 1), 1);
        const auto b = numbers<T>(static_cast<size_t>(f.ldb * (f.tb ? s.k : s.n) + 1), 2);
        const auto c = numbers<T>(static_cast<size_t>(f.ldc * s.n), 3);
        const DeviceArray<T> da(a), db(b), dc(c);
        const T alpha = T(1.5);
        ASSERT_EQ(
            cublasGemmEx(this->blas_, f.ta ? CUBLAS_OP_T : CUBLAS_OP_N, f.tb ? CUBLAS_OP_T : CUBLAS_OP_N, s.m,
                         s.n, s.k, &alpha, da.data(), kType<T>, f.lda, db.data(), kType<T>, f.ldb, &beta,
                         dc.data(), kType<T>, f.ldc, kCompute<T>, CUBLAS_GEMM_DEFAULT),
            CUBLAS_STATUS_SUCCESS);
        expect_near(dc.values(), plain(s, f, alpha, a.data(), b.data(), beta, c), this->kTolerance);
      }
}

// Heads in (B,T,H*D): the stride of the batch is smaller than a matrix.
TYPED_TEST(EmulatedProducts, batches_that_interleave) {
  using T = TypeParam;
  const Sizes s{6, 5, 4};
  const int batch = 3;
  const Form f{true, false, 12, 12, 6};
  const auto a = numbers<T>(12 * 6, 1), b = numbers<T>(12 * 5, 2);
  const DeviceArray<T> da(a), db(b), dc(90);
  const T one = 1, zero = 0;
  ASSERT_EQ(cublasGemmStridedBatchedEx(this->blas_, CUBLAS_OP_T, CUBLAS_OP_N, s.m, s.n, s.k, &one, da.data(),
                                       kType<T>, 12, 4, db.data(), kType<T>, 12, 4, &zero, dc.data(),
                                       kType<T>, 6, 30, batch, kCompute<T>, CUBLAS_GEMM_DEFAULT),
            CUBLAS_STATUS_SUCCESS);
  const auto out = dc.values();
  for (int i = 0; i < batch; ++i)
    expect_near(std::vector<T>(out.begin() + 30 * i, out.begin() + 30 * (i + 1)),
                plain(s, f, one, a.data() + 4 * i, b.data() + 4 * i, zero, std::vector<T>(30)),
                this->kTolerance);
}

TEST(EmulatedBlas, tf32_rounds_and_is_off_unless_asked_for) {
  cublasHandle_t blas = nullptr;
  ASSERT_EQ(cublasCreate(&blas), CUBLAS_STATUS_SUCCESS);
  const DeviceArray<float> a(std::vector<float>{1.0f + 1.0f / 4096}), b(std::vector<float>{1}), c(1);
  const float one = 1, zero = 0;
  const auto multiply = [&] {
    cublasSgemm(blas, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, a.data(), 1, b.data(), 1, &zero, c.data(), 1);
    return c.values()[0];
  };
  EXPECT_EQ(multiply(), 1.0f + 1.0f / 4096);
  ASSERT_EQ(cublasSetMathMode(blas, CUBLAS_TF32_TENSOR_OP_MATH), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(multiply(), 1.0f);
  cublasDestroy(blas);
}

// One product by cuBLASLt; creates and destroys its descriptors.
class LtProduct {
 public:
  LtProduct(cudaDataType type, cublasComputeType_t compute, Sizes s) {
    cublasLtCreate(&lt_);
    cublasLtMatmulDescCreate(&operation_, compute, type);
    cublasLtMatrixLayoutCreate(&a_, type, static_cast<uint64_t>(s.k), static_cast<uint64_t>(s.m), s.k);
    cublasLtMatrixLayoutCreate(&b_, type, static_cast<uint64_t>(s.k), static_cast<uint64_t>(s.n), s.k);
    cublasLtMatrixLayoutCreate(&d_, type, static_cast<uint64_t>(s.m), static_cast<uint64_t>(s.n), s.m);
    set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  }
  ~LtProduct() {
    for (auto* layout : {a_, b_, d_}) cublasLtMatrixLayoutDestroy(layout);
    cublasLtMatmulDescDestroy(operation_);
    cublasLtDestroy(lt_);
  }
  LtProduct(const LtProduct&) = delete;
  LtProduct& operator=(const LtProduct&) = delete;

  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, T value) {
    ASSERT_EQ(cublasLtMatmulDescSetAttribute(operation_, attribute, &value, sizeof value),
              CUBLAS_STATUS_SUCCESS);
  }
  // Sets the alignment of all matrices.
  cublasStatus_t heuristic(uint32_t alignment = 256) {
    cublasLtMatmulPreference_t preference = nullptr;
    cublasLtMatmulPreferenceCreate(&preference);
    const size_t workspace = 1 << 20;
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                         sizeof workspace);
    for (const auto attribute :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      if (alignment != 256)  // the default
        cublasLtMatmulPreferenceSetAttribute(preference, attribute, &alignment, sizeof alignment);
    int found = 0;
    const auto status =
        cublasLtMatmulAlgoGetHeuristic(lt_, operation_, a_, b_, d_, d_, preference, 1, &result, &found);
    EXPECT_EQ(found, status == CUBLAS_STATUS_SUCCESS);
    cublasLtMatmulPreferenceDestroy(preference);
    return status;
  }
  template <class T>
  cublasStatus_t run(const T* a, const T* b, T* d, const cublasLtMatmulAlgo_t* algorithm = nullptr) {
    const T one = 1, zero = 0;
    return cublasLtMatmul(lt_, operation_, &one, a, a_, b, b_, &zero, d, d_, d, d_, algorithm, nullptr, 0,
                          nullptr);
  }
  cublasLtMatmulHeuristicResult_t result{};  // of the heuristic

 private:
  cublasLtHandle_t lt_ = nullptr;
  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, d_ = nullptr;
};

TEST(EmulatedBlasLt, epilogues) {
  const Sizes s{19, 6, 8};
  const Form f{true, false, 8, 8, 19};
  const auto a = numbers<float>(19 * 8, 1), b = numbers<float>(6 * 8, 2), bias = numbers<float>(19, 3);
  const DeviceArray<float> da(a), db(b), dbias(bias), d(19 * 6);
  const DeviceArray<float> aux(24 * 6);
  const auto base = plain(s, f, 1.0f, a.data(), b.data(), 0.0f, std::vector<float>(19 * 6));
  for (const auto epilogue : {CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_GELU,
                              CUBLASLT_EPILOGUE_GELU_BIAS, CUBLASLT_EPILOGUE_GELU_AUX_BIAS}) {
    LtProduct product(CUDA_R_32F, CUBLAS_COMPUTE_32F, s);
    product.set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    product.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, dbias.data());
    if (epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS) {
      product.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux.data());
      product.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, int64_t{24});
    }
    ASSERT_EQ(product.heuristic(), CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(product.run(da.data(), db.data(), d.data()), CUBLAS_STATUS_SUCCESS);
    const auto out = d.values(), kept = aux.values();
    for (size_t i = 0; i < out.size(); ++i) {
      double x = static_cast<double>(base[i]);
      if (epilogue & CUBLASLT_EPILOGUE_BIAS) x += static_cast<double>(bias[i % 19]);
      if (epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS) {
        ASSERT_NEAR(kept[i / 19 * 24 + i % 19], x, 1e-5);
      }
      if (epilogue & CUBLASLT_EPILOGUE_GELU)
        x = 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
      ASSERT_NEAR(out[i], x, 1e-5) << "epilogue " << epilogue << " at " << i;
    }
  }
  EXPECT_STREQ(bonsai_emulation_errors(), "");
}

TEST(EmulatedBlasLt, refuses_what_the_real_one_does) {
  emulation::options().quiet = true;
  const DeviceArray<double> a(std::vector<double>(64)), b(std::vector<double>(64)), d(64);
  LtProduct product(CUDA_R_64F, CUBLAS_COMPUTE_64F, {8, 8, 8});
  EXPECT_EQ(product.run(a.data(), b.data(), d.data()), CUBLAS_STATUS_SUCCESS);
  EXPECT_STREQ(bonsai_emulation_errors(), "");
  product.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_GELU);
  EXPECT_EQ(product.heuristic(), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(product.run(a.data(), b.data(), d.data()), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_NE(std::string(bonsai_emulation_errors()).find("cublasLtMatmul: f64 has no epilogue but DEFAULT"),
            std::string::npos);
  LtProduct with_bias(CUDA_R_32F, CUBLAS_COMPUTE_32F, {8, 8, 8});
  with_bias.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
  const DeviceArray<float> x(std::vector<float>(64)), y(64);
  EXPECT_EQ(with_bias.run(x.data(), x.data(), y.data()), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_NE(std::string(bonsai_emulation_errors()).find("but no BIAS_POINTER"), std::string::npos);
  const DeviceArray<float> short_bias(7);
  with_bias.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, short_bias.data());
  EXPECT_EQ(with_bias.run(x.data(), x.data(), y.data()), CUBLAS_STATUS_EXECUTION_FAILED);
  EXPECT_NE(std::string(bonsai_emulation_errors()).find("cublasLtMatmul bias: expected 32 bytes"),
            std::string::npos);
  emulation::options().quiet = false;
}

// A caller that ignores the number of algorithms found, or their state.
TEST(EmulatedBlasLt, an_algorithm_that_was_not_found) {
  const auto kept = emulation::options();
  emulation::options().quiet = true;
  const DeviceArray<float> x(std::vector<float>(64)), y(64);
  const std::string words = "cublasLtMatmul: an algorithm that no heuristic has found";
  const auto refused = [&](LtProduct& product) {
    EXPECT_EQ(product.run(x.data(), x.data(), y.data(), &product.result.algo), CUBLAS_STATUS_INVALID_VALUE);
    EXPECT_NE(std::string(bonsai_emulation_errors()).find(words), std::string::npos);
  };
  LtProduct product(CUDA_R_32F, CUBLAS_COMPUTE_32F, {8, 8, 8});
  emulation::options().algorithms = emulation::Algorithms::none;
  EXPECT_EQ(product.heuristic(), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_STREQ(bonsai_emulation_errors(), "") << "that there is none is no fault";
  refused(product);
  emulation::options().algorithms = emulation::Algorithms::unusable;
  EXPECT_EQ(product.heuristic(), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(product.result.state, CUBLAS_STATUS_NOT_SUPPORTED);
  refused(product);
  emulation::options().algorithms = emulation::Algorithms::found;
  EXPECT_EQ(product.heuristic(16), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(product.run(x.data(), x.data(), y.data(), &product.result.algo), CUBLAS_STATUS_SUCCESS);
  emulation::options() = kept;
}

TEST(EmulatedBlasLt, matrices_less_aligned_than_the_heuristic_was_told) {
  const auto kept = emulation::options();
  emulation::options().quiet = true;
  const DeviceArray<float> x(std::vector<float>(68)), y(68);  // each aligned to 16 bytes
  LtProduct product(CUDA_R_32F, CUBLAS_COMPUTE_32F, {8, 8, 8});
  const auto outcome = [&](uint32_t told, int a, int b, int d) {
    EXPECT_EQ(product.heuristic(told), CUBLAS_STATUS_SUCCESS);
    const auto status = product.run(x.data() + a, x.data() + b, y.data() + d, &product.result.algo);
    const std::string text = bonsai_emulation_errors();
    EXPECT_EQ(text.empty(), status == CUBLAS_STATUS_SUCCESS) << text;
    return text.substr(0, text.find(" (cublas"));
  };
  EXPECT_EQ(outcome(16, 0, 0, 0), "");
  EXPECT_EQ(outcome(4, 1, 2, 3), "");
  const std::string words = " is not aligned to the 16 bytes for which its algorithm was found";
  EXPECT_EQ(outcome(16, 1, 0, 0), "cublasLtMatmul: A" + words);
  EXPECT_EQ(outcome(16, 0, 2, 0), "cublasLtMatmul: B" + words);
  EXPECT_EQ(outcome(16, 0, 0, 3), "cublasLtMatmul: C" + words);
  const bool wide = reinterpret_cast<uintptr_t>(x.data()) % 256 == 0;
  EXPECT_EQ(outcome(256, wide ? 4 : 0, 0, 0).empty(), false) << "the default";
  emulation::options() = kept;
}

}  // namespace
