// The emulated device computes what a real one computes: kernels with shuffles, votes, atomics and shared
// memory, in every order of threads; copies; counts. All tests of the backend without a GPU depend on it.
#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "bonsai/tests/cuda_emulation/device_array.h"
#include "bonsai/tests/cuda_emulation/emulation.h"
#include "bonsai/tests/cuda_emulation/sample.h"

namespace {

using emulation::Order;
using emulation::test::DeviceArray;
using emulation::test::must;
using gpu::launch;

// Runs in each order of threads, and with lazy work.
class EmulatedDevice : public testing::TestWithParam<std::pair<Order, bool>> {
 protected:
  void SetUp() override {
    kept_ = emulation::options();
    emulation::options() = {};
    emulation::options().order = GetParam().first;
    emulation::options().lazy = GetParam().second;
  }
  void TearDown() override {
    EXPECT_STREQ(bonsai_emulation_errors(), "");
    emulation::options() = kept_;
  }

 private:
  emulation::Options kept_;
};

template <class T>
std::vector<T> iota(size_t n) {
  std::vector<T> v(n);
  std::iota(v.begin(), v.end(), T(0));
  return v;
}

TEST_P(EmulatedDevice, sums_of_rows) {
  for (const int n : {1, 31, 32, 33, 256, 1000})
    for (const unsigned threads : {32u, 64u, 256u, 1024u}) {
      const DeviceArray<float> x(iota<float>(static_cast<size_t>(3 * n))), out(3);
      launch({3, threads}, sample::sum_rows, x.data(), out.data(), n);
      for (int r = 0; r < 3; ++r)
        EXPECT_NEAR(out.values()[static_cast<size_t>(r)], r * n * float(n) + n * float(n - 1) / 2,
                    2e-6f * 9 * n * n);
    }
}
TEST_P(EmulatedDevice, transposes_through_shared_memory) {
  const int m = 37, n = 70;
  const auto values = iota<float>(m * n);
  const DeviceArray<float> x(values), out(m * n);
  launch({dim3(gpu::ceil_div(n, 32), gpu::ceil_div(m, 32)), dim3(32, 8)}, sample::transpose, x.data(),
         out.data(), m, n);
  const auto y = out.values();
  for (size_t i = 0; i < m; ++i)
    for (size_t j = 0; j < n; ++j) ASSERT_EQ(y[j * m + i], values[i * n + j]);
}
TEST_P(EmulatedDevice, histogram_by_atomics) {
  std::vector<int> x(5000), counts(97, 0);
  for (size_t i = 0; i < x.size(); ++i) ++counts[static_cast<size_t>(x[i] = static_cast<int>(i * i % 97))];
  const DeviceArray<int> device(x), out(std::vector<int>(97, 0));
  launch({7, 128, 97 * sizeof(int)}, sample::histogram, device.data(), 5000, out.data(), 97);
  EXPECT_EQ(out.values(), counts);
}
TEST_P(EmulatedDevice, lanes_ask_each_other) {
  const DeviceArray<unsigned> out(32 * 6);
  launch({1, 32}, sample::ask_lanes, out.data());
  const auto v = out.values();
  for (unsigned lane = 0; lane < 32; ++lane) {
    const unsigned* mine = &v[lane * 6];
    EXPECT_EQ(mine[0], 0x49249249u);
    EXPECT_EQ(mine[1], 1u);
    EXPECT_EQ(mine[2], 5u);
    EXPECT_EQ(mine[3], lane % 8 ? lane - 1 : lane);
    EXPECT_EQ(mine[4], lane + 3 < 32 ? lane + 3 : lane);
    if (lane < 16) {
      EXPECT_EQ(mine[5] % 100, lane ^ 1);
    }
  }
}
TEST_P(EmulatedDevice, votes_of_a_block) {
  const DeviceArray<int> out(96);
  launch({1, 96}, sample::vote_in_block, out.data());
  EXPECT_EQ(out.values(), std::vector<int>(96, 2410));
}
TEST_P(EmulatedDevice, scan_of_a_warp) {
  const DeviceArray<double> p(std::vector<double>(32, 0.5));
  launch({1, 32}, sample::scan_warp, p.data());
  for (size_t i = 0; i < 32; ++i) EXPECT_EQ(p.values()[i], 0.5 * static_cast<double>(i + 1));
}
TEST_P(EmulatedDevice, every_thread_knows_where_it_is) {
  const dim3 grid(2, 3, 2), block(3, 2, 5);
  const DeviceArray<unsigned> out(12 * 30 * 6);
  launch({grid, block}, sample::where_am_i, out.data());
  const auto v = out.values();
  size_t at = 0;
  for (unsigned b = 0; b < 12; ++b)
    for (unsigned t = 0; t < 30; ++t, at += 6) {
      const std::vector<unsigned> expected{b % 2, b / 2 % 3, b / 6, t % 3, t / 3 % 2, t / 6};
      ASSERT_EQ(
          std::vector<unsigned>(v.begin() + static_cast<long>(at), v.begin() + static_cast<long>(at) + 6),
          expected);
    }
}
TEST_P(EmulatedDevice, the_last_block_sees_what_all_wrote) {
  const DeviceArray<float> x(iota<float>(50)), partial(50), out(1);
  const DeviceArray<unsigned> arrived(std::vector<unsigned>{0});
  for (int round = 0; round < 2; ++round) {
    launch({50, 1}, sample::last_block, x.data(), partial.data(), arrived.data(), out.data());
    EXPECT_EQ(out.values()[0], 2450.0f);
  }
}
INSTANTIATE_TEST_SUITE_P(Orders, EmulatedDevice,
                         testing::Values(std::pair{Order::forward, false}, std::pair{Order::reverse, false},
                                         std::pair{Order::random, false}, std::pair{Order::reverse, true}));

class Emulation : public testing::Test {
 protected:
  void SetUp() override {
    kept_ = emulation::options();
    emulation::options() = {};
  }
  void TearDown() override {
    EXPECT_STREQ(bonsai_emulation_errors(), "");
    emulation::options() = kept_;
  }

 private:
  emulation::Options kept_;
};

TEST_F(Emulation, counts_copies_launches_and_waits) {
  int64_t before[6], after[6];
  bonsai_emulation_counts(before);
  {
    const DeviceArray<double> a(std::vector<double>(8, 1.0)), b(8);
    launch({1, 8}, sample::scale, a.data(), 8, 3);
    must(cudaMemcpyAsync(b.data(), a.data(), 64, cudaMemcpyDefault, nullptr));
    must(cudaStreamSynchronize(nullptr));
    EXPECT_EQ(b.values()[7], 3.0);
  }
  bonsai_emulation_counts(after);
  const int64_t expected[6] = {1, 1, 1, 1, 2, 1};
  for (int i = 0; i < 6; ++i) EXPECT_EQ(after[i] - before[i], expected[i]) << i;
}
TEST_F(Emulation, memory_ends_and_says_so) {
  emulation::options().memory = 1 << 20;
  size_t free = 0, total = 0;
  {
    const DeviceArray<char> most(size_t{1000} << 10);
    void* p = nullptr;
    EXPECT_EQ(cudaMalloc(&p, 64 << 10), cudaErrorMemoryAllocation);
    EXPECT_EQ(p, nullptr);
    EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "a failed allocation leaves the device as it was";
    must(cudaMemGetInfo(&free, &total));
    EXPECT_EQ(free, size_t{24} << 10);
  }
  must(cudaMemGetInfo(&free, &total));
  EXPECT_EQ(free, total);
  EXPECT_EQ(total, size_t{1} << 20);
  EXPECT_STREQ(bonsai_emulation_errors(), "") << "running out of memory is no fault";
}
TEST_F(Emulation, knows_what_kind_of_memory_a_pointer_is) {
  const DeviceArray<float> d(10);
  void* pinned = nullptr;
  must(cudaMallocHost(&pinned, 100));
  cudaPointerAttributes a{};
  must(cudaPointerGetAttributes(&a, d.data() + 9));
  EXPECT_EQ(a.type, cudaMemoryTypeDevice);
  must(cudaPointerGetAttributes(&a, static_cast<char*>(pinned) + 99));
  EXPECT_EQ(a.type, cudaMemoryTypeHost);
  must(cudaPointerGetAttributes(&a, &d));
  EXPECT_EQ(a.type, cudaMemoryTypeUnregistered);
  must(cudaFreeHost(pinned));
}
TEST_F(Emulation, a_block_without_barriers_takes_one_switch) {
  const int64_t before = emulation::switches();
  launch({1000, 256}, sample::nothing, 0);
  EXPECT_EQ(emulation::switches() - before, 1000);
}
TEST_F(Emulation, calls_may_come_from_any_thread) {
  const DeviceArray<double> a(std::vector<double>(64, 1.0));
  const DeviceArray<float> x(iota<float>(64)), out(1);
  for (int i = 0; i < 4; ++i)
    std::thread([&] {
      launch({1, 64}, sample::scale, a.data(), 64, 2);
      launch({1, 64}, sample::sum_rows, x.data(), out.data(), 64);
    }).join();
  EXPECT_EQ(a.values()[63], 16.0);
  EXPECT_EQ(out.values()[0], 2016.0f);
}

}  // namespace
