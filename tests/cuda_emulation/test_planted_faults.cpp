// Faults planted in kernels and in calls: each must be found, and the report must say what is wrong and
// where. A fault that cannot be reported, such as a missing barrier, must change the result with the order of
// threads, or give NaN.
#include <cublas_v2.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "bonsai/tests/cuda_emulation/device_array.h"
#include "bonsai/tests/cuda_emulation/emulation.h"
#include "bonsai/tests/cuda_emulation/faults.h"
#include "bonsai/tests/cuda_emulation/sanitizer.h"

namespace {

using emulation::test::DeviceArray;
using gpu::launch;

class PlantedFaults : public testing::Test {
 protected:
  void SetUp() override {
    (void)bonsai_emulation_errors();
    kept_ = emulation::options();
    emulation::options() = {};  // the expected reports depend on the order of threads
    emulation::options().quiet = true;
  }
  void TearDown() override {
    emulation::options() = kept_;
    (void)bonsai_emulation_errors();
  }

  // The reports made while f ran, and the error that it threw.
  static std::string reports_of(const std::function<void()>& f) {
    std::string thrown;
    try {
      f();
      cudaDeviceSynchronize();
    } catch (const std::exception& e) {
      thrown = e.what();
    }
    const std::string all = bonsai_emulation_errors();
    EXPECT_STREQ(bonsai_emulation_errors(), "") << "forgotten once told";
    return all + (thrown.empty() ? "" : "\nthrown: " + thrown);
  }
  static void expect(const std::function<void()>& f, const std::vector<std::string>& words) {
    const std::string text = reports_of(f);
    for (const std::string& word : words)
      EXPECT_NE(text.find(word), std::string::npos) << "no '" << word << "' in: " << text;
    expect_healthy();
  }
  // The device has recovered.
  static void expect_healthy() {
    DeviceArray<float> d(64);
    launch({2, 32}, faults::fill, d.data(), 64);
    EXPECT_EQ(d.values()[63], 63.0f);
    EXPECT_STREQ(bonsai_emulation_errors(), "");
  }
  // The results of a kernel with the given order of threads.
  static std::vector<float> result(emulation::Order order, int n, const std::function<void(float*)>& run) {
    emulation::options().order = order;
    DeviceArray<float> d(static_cast<size_t>(n));
    launch({gpu::ceil_div(n, 256), 256}, faults::fill, d.data(), n);
    run(d.data());
    return d.values();
  }
  static bool depends_on_order(int n, const std::function<void(float*)>& run) {
    const auto a = result(emulation::Order::forward, n, run), b = result(emulation::Order::reverse, n, run);
    return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) != 0;
  }

 private:
  emulation::Options kept_;
};

TEST_F(PlantedFaults, write_past_the_end_of_device_memory) {
  DeviceArray<float> d(1024);
  expect(
      [&] {
        launch({1, 32}, faults::write_at, d.data(), 1024);
      },
      {"illegal access in faults::write_at block (0,0,0) thread (3,0,0)",
       "faults.cu:", "4096 bytes, at byte 4096 (past its end)"});
}
TEST_F(PlantedFaults, write_just_past_an_odd_end) {
  if (emulation::kAddressSanitizer) GTEST_SKIP() << "the sanitizer would end the program";
  DeviceArray<float> d(5);
  expect([&] { launch({1, 32}, faults::write_at, d.data(), 5); },
         {"bytes just past device allocation", "of 20 bytes", "by faults::write_at"});
}
TEST_F(PlantedFaults, write_before_the_start) {
  if (emulation::kAddressSanitizer) GTEST_SKIP() << "the sanitizer would end the program";
  expect(
      [] {
        launch({1, 32}, faults::write_at, DeviceArray<float>(1024).data(), -1000);
      },
      {"(before it)", "faults::write_at"});
  expect([] { launch({1, 32}, faults::write_at, DeviceArray<float>(100).data(), -1); },
         {"cudaFree: bytes before device allocation"});
}
TEST_F(PlantedFaults, memory_used_after_it_was_freed) {
  float* p = nullptr;
  {
    DeviceArray<float> d(64);
    p = d.data();
  }
  expect(
      [&] {
        launch({1, 64}, faults::fill, p, 64);
      },
      {"launch of faults::fill: pointer argument 0 is freed device allocation",
       "from test_planted_faults.cpp:"});
}
TEST_F(PlantedFaults, host_pointers_given_to_kernels) {
  std::vector<float> host(64);
  DeviceArray<float> d(64);
  expect([&] { launch({1, 64}, faults::copy, d.data(), host.data(), 64); },
         {"launch of faults::copy: pointer argument 1 is host memory", "from test_planted_faults.cpp:"});
  float* pinned = nullptr;
  ASSERT_EQ(cudaMallocHost(reinterpret_cast<void**>(&pinned), 256), cudaSuccess);
  expect(
      [&] {
        launch({1, 64}, faults::copy, d.data(), pinned, 64);
      },
      {"pointer argument 1 is pinned host memory"});
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
}
TEST_F(PlantedFaults, host_pointers_inside_structs) {
#if defined(__clang__)
  GTEST_SKIP() << "clang cannot clear padding, so structs are not searched";
#endif
  std::vector<float> host(64);
  DeviceArray<float> d(64);
  expect([&] { launch({1, 1}, faults::sum_view, d.data(), faults::View{host.data(), 64}); },
         {"launch of faults::sum_view: argument 1 holds a pointer at byte 0 that is host memory"});
  EXPECT_EQ(reports_of([&] { launch({1, 1}, faults::sum_view, d.data(), faults::View{d.data(), 64}); }), "");
}
TEST_F(PlantedFaults, null_and_uninitialised_pointers) {
  if (emulation::kAddressSanitizer) GTEST_SKIP() << "the sanitizer would end the program";
  expect(
      [] {
        launch({1, 64}, faults::fill, static_cast<float*>(nullptr), 64);
      },
      {"faults::fill", "a null pointer"});
  DeviceArray<float*> table(32);
  expect(
      [&] {
        launch({1, 32}, faults::follow, table.data());
      },
      {"faults::follow", "an address that no memory has"});
}
TEST_F(PlantedFaults, integer_division_by_zero) {
  if (emulation::kAddressSanitizer) GTEST_SKIP() << "the sanitizer would end the program";
  DeviceArray<int> d(32);
  expect(
      [&] {
        launch({1, 32}, faults::divide, d.data(), 0);
      },
      {"faults::divide", "integer division by zero"});
}
TEST_F(PlantedFaults, more_local_memory_than_there_is) {
  if (emulation::kAddressSanitizer) GTEST_SKIP() << "the sanitizer moves large arrays elsewhere";
  DeviceArray<float> d(1);
  expect([&] { launch({1, 1}, faults::deep_stack, d.data(), 3); }, {"faults::deep_stack", "stack overflow"});
}

TEST_F(PlantedFaults, threads_that_exit_before_a_barrier) {
  DeviceArray<float> d(64);
  expect(
      [&] {
        launch({1, 64}, faults::exit_before_barrier, d.data());
      },
      {"barrier not reached by all threads in faults::exit_before_barrier block 0: 40 thread(s) at "
       "__syncthreads faults.cu:",
       "24 thread(s) exited"});
}
TEST_F(PlantedFaults, divergent_barriers) {
  DeviceArray<float> d(64);
  expect(
      [&] {
        launch({1, 64}, faults::two_barriers, d.data());
      },
      {"divergent barrier in faults::two_barriers block 0: 32 thread(s) at __syncthreads faults.cu:",
       "(first: thread 32)"});
}
TEST_F(PlantedFaults, shuffles_with_lanes_that_are_not_there) {
  DeviceArray<float> d(64);
  expect(
      [&] {
        launch({1, 32}, faults::shuffle_after_exit, d.data(), 20);
      },
      {"deadlock in faults::shuffle_after_exit",
       "20 thread(s) at __shfl_xor_sync faults.cu:", "12 thread(s) exited"});
  expect([&] { launch({1, 20}, faults::shuffle_after_exit, d.data(), 20); },
         {"the mask names lanes that do not exist (block of 20 threads)"});
  expect(
      [&] {
        launch({1, 32}, faults::shuffle_in_branch, d.data());
      },
      {"lane 0 of the mask has exited", "faults::shuffle_in_branch"});
  expect([&] { launch({1, 32}, faults::shuffle_two_places, d.data()); },
         {"divergent warp operation", "thread 0 at __shfl_xor_sync", "thread 1 at __shfl_xor_sync"});
  expect([&] { launch({1, 32}, faults::shuffle_from_idle, d.data()); },
         {"lane 1 reads lane 0, which is not in the mask", "faults.cu:"});
  expect([&] { launch({1, 32}, faults::shuffle_not_in_mask, d.data()); }, {"lane 0 is not in its own mask"});
}
TEST_F(PlantedFaults, missing_barriers_show_in_another_order) {
  EXPECT_TRUE(depends_on_order(64, [](float* d) { launch({1, 64}, faults::no_barrier, d); }));
  EXPECT_TRUE(depends_on_order(32, [](float* d) { launch({1, 32}, faults::no_syncwarp, d); }));
  EXPECT_TRUE(depends_on_order(256, [](float* d) { launch({1, 64}, faults::no_barrier_in_loop, d, 4); }));
  EXPECT_FALSE(depends_on_order(64, [](float* d) { launch({1, 64, 256}, faults::use_dynamic, d); }));
}
TEST_F(PlantedFaults, unwritten_memory_reads_as_nan) {
  DeviceArray<float> from(64), d(64);
  launch({1, 64}, faults::copy, d.data(), from.data(), 64);
  EXPECT_TRUE(std::isnan(d.values()[5]));
  launch({1, 32}, faults::read_unwritten_shared, d.data());
  EXPECT_EQ(d.values()[30], 1.0f);
  EXPECT_TRUE(std::isnan(d.values()[31]));
}
TEST_F(PlantedFaults, trap) {
  DeviceArray<float> d(std::vector<float>{1, 2, -3, 4});
  expect([&] { launch({1, 4}, faults::trap_if_negative, d.data()); },
         {"__trap() at faults.cu:", "in faults::trap_if_negative block (0,0,0) thread (2,0,0)"});
}

TEST_F(PlantedFaults, launches_beyond_the_limits) {
  DeviceArray<float> d(64);
  const std::string name = "launch of faults::fill: ";
  expect([&] { launch({1, 2048}, faults::fill, d.data(), 64); }, {name + "bad block size"});
  expect([&] { launch({1, 0}, faults::fill, d.data(), 64); }, {name + "bad block size"});
  expect([&] { launch({1, dim3(1, 1, 128)}, faults::fill, d.data(), 64); }, {name + "bad block size"});
  expect([&] { launch({dim3(1, 70000), 32}, faults::fill, d.data(), 64); }, {name + "grid too large"});
  expect(
      [&] {
        launch({0, 32}, faults::fill, d.data(), 64);
      },
      {name + "a grid dimension is 0", "thrown: a kernel's launch"});
}
TEST_F(PlantedFaults, shared_memory_beyond_the_limits) {
  DeviceArray<float> d(64);
  expect(
      [&] {
        launch({1, 64, 64 * 1024}, faults::use_dynamic, d.data());
      },
      {"dynamic shared memory above the limit"});
  expect(
      [&] {
        launch({1, 64}, faults::use_dynamic, d.data());
      },
      {"the launch gave 0 bytes", "faults::use_dynamic"});
  expect(
      [&] {
        launch({1, 64}, faults::too_much_shared, d.data());
      },
      {"more than 48 KiB of static", "faults::too_much_shared"});
  expect([] { gpu::allow_smem(faults::use_dynamic, 228 * 1024); },
         {"cudaFuncSetAttribute for faults::use_dynamic"});
  EXPECT_EQ(reports_of([&] {
              gpu::allow_smem(faults::use_dynamic, 64 * 1024);
              launch({1, 64, 64 * 1024}, faults::use_dynamic, d.data());
            }),
            "");
}

TEST_F(PlantedFaults, copies_in_the_wrong_direction_or_too_long) {
  DeviceArray<float> d(4);
  float h[8] = {};
  expect([&] { cudaMemcpy(h, d.data(), 16, cudaMemcpyHostToDevice); },
         {"cudaMemcpy destination", "host memory", "from test_planted_faults.cpp:"});
  expect([&] { cudaMemcpy(d.data(), h, 16, cudaMemcpyDeviceToHost); },
         {"cudaMemcpy destination: expected 16 bytes of host memory"});
  expect([&] { cudaMemcpy(h, d.data(), 32, cudaMemcpyDeviceToHost); },
         {"cudaMemcpy source: expected 32 bytes", "of 16 bytes"});
  expect([&] { cudaMemcpyAsync(h, d.data(), 32, cudaMemcpyDefault, nullptr); }, {"cudaMemcpyAsync source"});
  expect([&] { cudaMemset(d.data(), 0, 17); }, {"cudaMemset: expected 17 bytes"});
}
TEST_F(PlantedFaults, freed_twice_or_never_allocated) {
  float* p = nullptr;
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&p), 4), cudaSuccess);
  expect(
      [&] {
        cudaFree(p);
        cudaFree(p);
      },
      {"cudaFree: freed device allocation", "is not the start of a live allocation",
       "from test_planted_faults.cpp:"});
  float host = 0;
  expect([&] { cudaFree(&host); }, {"cudaFree: host memory"});
  expect([&] { cudaFreeHost(&host); }, {"cudaFreeHost: host memory"});
}
// A failing call is reported even if the caller ignores its result, and all later calls fail.
TEST_F(PlantedFaults, unchecked_calls) {
  DeviceArray<float> d(4);
  float h[4] = {};
  (void)cudaMemcpyAsync(d.data(), h, 32, cudaMemcpyHostToDevice, nullptr);  // the fault: it failed
  void* p = nullptr;
  EXPECT_EQ(cudaMalloc(&p, 4), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
  const std::string text = bonsai_emulation_errors();
  EXPECT_NE(text.find("cudaMemcpyAsync destination: expected 32 bytes"), std::string::npos) << text;
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  expect_healthy();
}
TEST_F(PlantedFaults, streams_and_handles_that_were_destroyed) {
  cudaStream_t s = nullptr;
  ASSERT_EQ(cudaStreamCreate(&s), cudaSuccess);
  ASSERT_EQ(cudaStreamDestroy(s), cudaSuccess);
  DeviceArray<float> d(64);
  expect([&] { launch({1, 64, 0, s}, faults::fill, d.data(), 64); }, {"no such stream"});
  cublasHandle_t h = nullptr;
  ASSERT_EQ(cublasCreate(&h), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cublasDestroy(h), CUBLAS_STATUS_SUCCESS);
  expect([&] { cublasSetStream(h, nullptr); }, {"cublasSetStream: no such handle"});
}

// The current device is per thread, and initially device 0.
TEST_F(PlantedFaults, a_thread_that_has_not_selected_its_device) {
  emulation::options().devices = 2;
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  cudaStream_t s = nullptr;
  cublasHandle_t h = nullptr;
  ASSERT_EQ(cudaStreamCreate(&s), cudaSuccess);
  ASSERT_EQ(cublasCreate(&h), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cublasSetStream(h, s), CUBLAS_STATUS_SUCCESS);
  DeviceArray<float> d(64);
  const float one = 1;
  const auto fill = [&] { launch({1, 64, 0, s}, faults::fill, d.data(), 64); };
  const auto multiply = [&] {
    cublasSgemm(h, CUBLAS_OP_N, CUBLAS_OP_N, 4, 4, 4, &one, d.data(), 4, d.data() + 16, 4, &one,
                d.data() + 32, 4);
  };
  const auto reports_of_thread = [](const std::function<void()>& f) {
    std::string text;
    std::thread([&] { text = reports_of(f); }).join();
    return text;
  };
  const std::string words = "the stream is of device 1, but the current device of this thread is 0";
  EXPECT_NE(reports_of_thread(fill).find("launch of faults::fill: " + words), std::string::npos);
  EXPECT_NE(reports_of_thread(multiply).find("cublasSgemm: " + words), std::string::npos);
  EXPECT_EQ(reports_of_thread([&] {
              cudaSetDevice(1);
              fill();
              multiply();
            }),
            "");
  expect([] { cudaSetDevice(2); }, {"cudaSetDevice: there is no device 2"});
  EXPECT_EQ(cublasDestroy(h), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cudaStreamDestroy(s), cudaSuccess);
  EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
}

TEST_F(PlantedFaults, products_with_wrong_leading_dimensions) {
  cublasHandle_t h = nullptr;
  ASSERT_EQ(cublasCreate(&h), CUBLAS_STATUS_SUCCESS);
  DeviceArray<float> a(std::vector<float>(12)), b(std::vector<float>(20)), c(15);
  const float one = 1, zero = 0;
  const auto gemm = [&](int lda, int ldb, int ldc) {
    cublasSgemm(h, CUBLAS_OP_N, CUBLAS_OP_N, 3, 5, 4, &one, a.data(), lda, b.data(), ldb, &zero, c.data(),
                ldc);
  };
  EXPECT_EQ(reports_of([&] { gemm(3, 4, 3); }), "");
  expect([&] { gemm(3, 5, 3); }, {"cublasSgemm B: expected 96 bytes of device memory", "of 80 bytes"});
  expect([&] { gemm(3, 3, 3); }, {"cublasSgemm: the leading dimension of B is 3, less than its 4 rows"});
  expect([&] { gemm(2, 4, 3); }, {"cublasSgemm: the leading dimension of A is 2, less than its 3 rows"});
  expect([&] { gemm(3, 4, 4); }, {"cublasSgemm output"});
  std::vector<float> host(20);
  expect(
      [&] {
        cublasSgemm(h, CUBLAS_OP_N, CUBLAS_OP_N, 3, 5, 4, &one, a.data(), 3, host.data(), 4, &zero, c.data(),
                    3);
      },
      {"cublasSgemm B", "host memory"});
  cublasDestroy(h);
}

TEST_F(PlantedFaults, missing_synchronisation_under_lazy_streams) {
  emulation::options().lazy = true;
  DeviceArray<float> a(64), b(64);
  cudaStream_t s = nullptr, t = nullptr;
  cudaEvent_t written = nullptr;
  cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
  cudaStreamCreateWithFlags(&t, cudaStreamNonBlocking);
  cudaEventCreate(&written);
  float* pinned = nullptr;
  cudaMallocHost(reinterpret_cast<void**>(&pinned), 256);
  const auto run = [&](bool wait_for_s, bool wait_for_t) {
    for (const auto* d : {&a, &b}) EXPECT_EQ(cudaMemset(d->data(), 0, 256), cudaSuccess);
    cudaDeviceSynchronize();
    launch({1, 64, 0, s}, faults::fill, a.data(), 64);
    cudaEventRecord(written, s);
    if (wait_for_s) cudaStreamWaitEvent(t, written, 0);
    launch({1, 64, 0, t}, faults::copy, b.data(), a.data(), 64);
    cudaMemcpyAsync(pinned, b.data(), 256, cudaMemcpyDeviceToHost, t);
    if (wait_for_t) cudaStreamSynchronize(t);
    const float seen = pinned[5];
    cudaDeviceSynchronize();
    return seen;
  };
  EXPECT_EQ(run(true, true), 5.0f);
  EXPECT_EQ(run(false, true), 0.0f) << "nothing orders the two streams";
  EXPECT_TRUE(std::isnan(run(true, false))) << "the host did not wait";
  cudaFreeHost(pinned);
  cudaEventDestroy(written);
  cudaStreamDestroy(s);
  cudaStreamDestroy(t);
}

// The address sanitizer ends the program when it finds a fault, so these tests run in a child process.
using PlantedFaultsDeathTest = PlantedFaults;
TEST_F(PlantedFaultsDeathTest, sanitizer_sees_shared_memory_overrun) {
  if (!emulation::kAddressSanitizer) GTEST_SKIP() << "without the address sanitizer";
  DeviceArray<float> d(64);
  EXPECT_DEATH(launch({1, 32}, faults::past_shared, d.data()), "out of bounds|use-after-poison");
}
TEST_F(PlantedFaultsDeathTest, sanitizer_sees_the_byte_past_an_odd_end) {
  if (!emulation::kAddressSanitizer) GTEST_SKIP() << "without the address sanitizer";
  DeviceArray<float> d(5);
  EXPECT_DEATH(launch({1, 32}, faults::write_at, d.data(), 5), "use-after-poison");
}
TEST_F(PlantedFaultsDeathTest, host_code_that_touches_device_memory) {
  if (emulation::kAddressSanitizer) GTEST_SKIP() << "the sanitizer's own words differ";
  emulation::options().host_guard = true;
  EXPECT_DEATH(
      {
        DeviceArray<float> d(64);
        launch({1, 64}, faults::fill, d.data(), 64);
        *static_cast<volatile float*>(d.data()) = 1;
      },
      "host code touched device memory");
}

}  // namespace
