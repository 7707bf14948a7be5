// The thread pool, and bit-identical results for any number of threads. A tile that runs twice or never, or a
// sum whose order depends on the threads, makes a run irreproducible.
#include <atomic>
#include <mutex>
#include <set>
#include <thread>

#include "bonsai/framework/checks/op_cases.h"
#include "bonsai/framework/core/parallel.h"
#include "bonsai/framework/ops/ops.h"
#include "bonsai/tests/affinity.h"
#include "bonsai/tests/support.h"

namespace bonsai::test {
namespace {

// Returns how often each tile ran; calls `inside` in every tile.
std::vector<int> runs_of(int64_t count, const std::function<void()>& inside = {}) {
  std::vector<std::atomic<int>> runs(static_cast<size_t>(count));
  run_tiles(count, [&](int64_t i) {
    ++runs[static_cast<size_t>(i)];
    if (inside) inside();
  });
  return {runs.begin(), runs.end()};
}

bool each_once(const std::vector<int>& runs) {
  return std::all_of(runs.begin(), runs.end(), [](int n) { return n == 1; });
}

TEST(Threads, EveryTileRunsOnceForAnyCount) {
  for (const int n : {1, 2, 3, 4}) {
    const Threads scope(n);
    EXPECT_EQ(threads(), n);
    for (int64_t count = 0; count <= 1000; ++count)
      EXPECT_TRUE(each_once(runs_of(count))) << count << " tiles, " << n << " threads";
  }
}

TEST(Threads, TilesAreFinishedWhenTheCallReturns) {
  const Threads scope(4);
  for (int round = 0; round < 500; ++round) {
    std::vector<int> results(64);  // not atomic: a tile that still runs is a data race
    run_tiles(64, [&](int64_t i) { results[static_cast<size_t>(i)] = static_cast<int>(i) + round; });
    for (int i = 0; i < 64; ++i) ASSERT_EQ(results[static_cast<size_t>(i)], i + round);
  }
}

// Also on one processor: the caller's tile waits until another thread has begun a slow tile.
TEST(Threads, TheCallWaitsForTheTilesOfOtherThreads) {
  const Threads scope(2);
  const auto caller = std::this_thread::get_id();
  for (int round = 0; round < 5; ++round) {
    std::atomic<bool> begun{false};
    std::atomic<int> finished{0};
    run_tiles(2, [&](int64_t) {
      if (std::this_thread::get_id() == caller) {
        for (int i = 0; i < 20000 && !begun; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      } else {
        begun = true;
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
      }
      ++finished;
    });
    EXPECT_EQ(finished, 2);
    EXPECT_TRUE(begun) << "no second thread took a tile";
    while (finished < 2) std::this_thread::yield();  // the threads use local variables of this test
  }
}

// Two tiles of one worker must not run at the same time, because they would use the same scratch memory.
TEST(Threads, AWorkerRunsOneTileAtATimeAndThereAreNoMoreOfThem) {
  for (const int n : {1, 2, 4})
    for (const int workers : {1, 2, 3, 9}) {
      const Threads scope(n);
      std::vector<std::atomic<int>> busy(static_cast<size_t>(workers)), runs(200);
      std::atomic<int> wrong{0};
      run_tiles(200, workers, [&](int64_t i, int worker) {
        ++runs[static_cast<size_t>(i)];
        if (worker < 0 || worker >= workers) return void(++wrong);
        wrong += busy[static_cast<size_t>(worker)].exchange(1);
        for (int spin = 0; spin < 200; ++spin) std::atomic_signal_fence(std::memory_order_seq_cst);
        busy[static_cast<size_t>(worker)] = 0;
      });
      EXPECT_EQ(wrong, 0) << n << " threads, " << workers << " workers";
      EXPECT_TRUE(each_once({runs.begin(), runs.end()}));
    }
}

TEST(Threads, ACallWithinATileRunsItself) {
  for (const int n : {1, 2, 4}) {
    const Threads scope(n);
    std::atomic<int> wrong{0};
    EXPECT_TRUE(each_once(runs_of(20, [&] {
      wrong += !each_once(runs_of(30, [&] { wrong += !each_once(runs_of(3)); }));
    })));
    EXPECT_EQ(wrong, 0);
  }
}

TEST(Threads, CallersAtTheSameTimeAllFinish) {
  for (const int n : {1, 2, 3}) {
    const Threads scope(n);
    std::atomic<int> wrong{0};
    std::vector<std::thread> callers;
    for (int caller = 0; caller < 3; ++caller)
      callers.emplace_back([&] {
        for (int64_t i = 0; i < 300; ++i) wrong += !each_once(runs_of(i % 37));
      });
    for (auto& caller : callers) caller.join();
    EXPECT_EQ(wrong, 0);
  }
}

TEST(Threads, TheNumberCanChangeBetweenAnyTwoCalls) {
  const Threads scope(2);
  for (int i = 0; i < 60; ++i) {
    set_threads(1 + i * 7 % 4);
    EXPECT_EQ(threads(), 1 + i * 7 % 4);
    EXPECT_TRUE(each_once(runs_of(i)));
  }
  for (const int bad : {0, -1, 1025})
    EXPECT_NE(error_of([&] { set_threads(bad); }).find(std::to_string(bad)), std::string::npos);
  EXPECT_TRUE(each_once(runs_of(9)));
}

// B46: with more threads than processors, each job woke all threads, and each then spun until the next job.
TEST(Threads, MoreThanTheProcessorsAreNotWokenForEachJob) {
  std::thread([] {  // the affinity mask is per thread
    ASSERT_TRUE(use_one_processor());
    const Threads scope(64);
    for (int round = 0; round < 20; ++round) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));  // until the workers sleep
      std::mutex mutex;
      std::set<std::thread::id> ran;
      run_tiles(64, [&](int64_t) {
        std::this_thread::sleep_for(std::chrono::microseconds(200));  // gives up the processor
        const std::lock_guard lock(mutex);
        ran.insert(std::this_thread::get_id());
      });
      EXPECT_LE(ran.size(), 8u);
    }
  }).join();
}

// ---- Bit-identical results.

using Call = std::function<Tensor(const std::vector<Tensor>&)>;

void expect_same_bits_for_any_threads(const std::string& name, const Call& f,
                                      const std::vector<Tensor>& inputs) {
  Result one;
  for (const int n : {1, 2, 3}) {
    const Threads scope(n);
    const Result r = differentiate(f, inputs);
    if (n == 1) one = r;
    EXPECT_TRUE(same_bits(r.y, one.y)) << name << " with " << n << " threads";
    ASSERT_EQ(r.gradients.size(), one.gradients.size());
    for (size_t i = 0; i < r.gradients.size(); ++i)
      EXPECT_TRUE(same_bits(r.gradients[i], one.gradients[i])) << name << ", gradient " << i << " with " << n
          << " threads";
  }
}

TEST(Bits, OfEveryRowOfTheOpTableAreEqualForAnyThreads) {
  for (const OpCase& row : op_cases())
    expect_same_bits_for_any_threads(row.name(), row.call, make_inputs(row, DType::f32));
}

// A fast generator; the numbers only need to round differently.
Tensor rough(const Shape& shape, uint32_t seed) {
  std::vector<float> v(static_cast<size_t>(shape.elements()));
  for (float& x : v) {
    seed = seed * 1664525 + 1013904223;
    x = static_cast<float>(static_cast<int32_t>(seed)) * 0x1p-30f;
  }
  return from<float>(shape, v);
}

Tensor spread_ids(const Shape& shape, int32_t limit) {
  std::vector<int32_t> v;
  for (int64_t i = 0; i < shape.elements(); ++i) v.push_back(static_cast<int32_t>(i * i % limit));
  return from<int32_t>(shape, v);
}

// Prime sizes leave a partial last tile in every kernel and are large enough for several tiles.
TEST(Bits, OfLargeSizesAreEqualForAnyThreads) {
  const Tensor x = rough({131, 257}, 1), w = rough({257}, 2), b = rough({257}, 3),
      square = rough({257, 131}, 4);
  const Tensor tall = rough({1009, 61}, 5), line = rough({100003}, 6), heads = rough({2, 127, 66}, 7);
  const Tensor targets = spread_ids({131}, 257), ids = spread_ids({3, 1009}, 131);
  const Tensor row = rough({1, 1009}, 8), wide = rough({307, 1009}, 9), mask = rough({127, 127}, 10);
  const Call biased =
      [](auto& in) { return scaled_dot_product_attention(in[0], in[1], in[2],
          {.n_heads = 3, .mask = {.causal = true}, .bias = in[3]}); };
  const struct {
    const char* name;
    Call call;
    std::vector<Tensor> inputs;
  } cases[] = {
      {"matmul", [](auto& in) { return matmul(in[0], in[1]); }, {x, square}},
      {"matmul, both transposed", [](auto& in) { return matmul(in[0], in[1], true, true); }, {x, square}},
      {"matmul, deep", [](auto& in) { return matmul(in[0], in[1], true); }, {tall, tall}},
      {"matmul, one row", [](auto& in) { return matmul(in[0], in[1], false, true); }, {row, wide}},
      {"matmul, broadcast", [](auto& in) { return matmul(in[0], in[1], false, true); },
       {rough({3, 1, 101, 29}, 11), rough({2, 97, 29}, 12)}},
      {"linear", [](auto& in) { return linear(in[0], in[1], in[2]); },
       {rough({7, 131, 61}, 13), rough({103, 61}, 14), rough({103}, 15)}},
      {"layer_norm", [](auto& in) { return layer_norm(in[0], in[1], in[2], 1e-5); }, {x, w, b}},
      {"rms_norm", [](auto& in) { return rms_norm(in[0], in[1], 1e-6); }, {x, w}},
      {"softmax", [](auto& in) { return softmax(in[0]); }, {x}},
      {"log_softmax", [](auto& in) { return log_softmax(in[0]); }, {x}},
      {"cross_entropy",
       [targets](auto& in) { return cross_entropy(in[0], targets, {.label_smoothing = 0.1}); }, {x}},
      {"embedding", [ids](auto& in) { return embedding(in[0], ids); }, {x}},
      {"sum", [](auto& in) { return sum(in[0]); }, {line}},
      {"sum of rows", [](auto& in) { return sum(in[0], 0); }, {tall}},
      {"sum within", [](auto& in) { return sum(in[0], 1); }, {rough({31, 67, 59}, 16)}},
      {"mean of columns", [](auto& in) { return mean(in[0], -1); }, {tall}},
      {"max", [](auto& in) { return max(in[0], 0); }, {tall}},
      {"gelu", [](auto& in) { return gelu(in[0]); }, {line}},
      {"dropout", [](auto& in) { return dropout(in[0], 0.3, {5, 6}); }, {line}},
      {"mul, stretched", [](auto& in) { return mul(in[0], in[1]); }, {x, w}},
      {"div, stretched", [](auto& in) { return div(in[0], in[1]); }, {tall, rough({1009, 1}, 17)}},
      {"permute", [](auto& in) { return permute(in[0], {1, 0}); }, {tall}},
      {"attention",
          [](auto& in) { return scaled_dot_product_attention(in[0], in[1], in[2],
              {.n_heads = 3, .mask = {.causal = true}}); }, {heads, heads, heads}},
      {"attention, masked, with dropout",
       [mask](auto& in) {
         return scaled_dot_product_attention(in[0], in[1], in[2],
                                             {.n_heads = 1, .bias = mask, .dropout = 0.2, .key = {1, 2}});
       },
       {heads, heads, heads}},
      {"attention, bias of heads and keys", biased, {heads, heads, heads, rough({3, 1, 127}, 18)}},
      {"attention, bias of heads, queries and keys", biased, {heads, heads, heads, rough({3, 127, 127}, 19)}},
      {"attention, bias of batch entries and queries", biased,
       {heads, heads, heads, rough({2, 1, 127, 127}, 20)}},
      {"attention, one number as bias", biased, {heads, heads, heads, rough({1}, 21)}},
  };
  for (const auto& c : cases) expect_same_bits_for_any_threads(c.name, c.call, c.inputs);
}

// Two threads call ops at the same time: the second finds the pool busy and runs its tiles itself.
TEST(Bits, AreEqualWhenTwoThreadsTrainAtOnce) {
  const Threads scope(2);
  const std::vector<Tensor> inputs = {rough({131, 61}, 1), rough({103, 61}, 2), rough({61}, 3)};
  const Call f =
      [](const std::vector<Tensor>& in) { return softmax(linear(rms_norm(in[0], in[2], 1e-6), in[1])); };
  const Result right = differentiate(f, inputs);
  std::atomic<int> wrong{0};
  const auto work = [&] {
    for (int i = 0; i < 30; ++i) {
      const Result r = differentiate(f, inputs);
      wrong += !same_bits(r.y, right.y);
      for (size_t k = 0; k < 3; ++k) wrong += !same_bits(r.gradients[k], right.gradients[k]);
    }
  };
  std::thread other(work);
  work();
  other.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace bonsai::test
