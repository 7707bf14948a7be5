// A run that ends differently with another number of threads, on a busy core or when repeated cannot be
// reproduced. The losses of 200 steps and the final weights must be bit-identical.
#include <sched.h>

#include "bonsai/tests/training.h"

namespace bonsai::test {
namespace {

constexpr int kSteps = 200;

// Restricts this thread, and those that it starts, to one core.
struct OneCore {
  OneCore() {
    EXPECT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu)
      if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
    EXPECT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  }
  ~OneCore() { ::sched_setaffinity(0, sizeof before, &before); }
  cpu_set_t before;
};

struct Curve {
  std::vector<double> losses;
  Tensor weights;
};

Curve train(const RunConfig& config, int threads) {
  const Threads scope(threads);
  Trainer trainer(config);
  Curve curve;
  for (int step = 0; step < kSteps; ++step) curve.losses.push_back(trainer.step(step).loss);
  curve.weights = trainer.arena().values();
  return curve;
}

void expect_repeats(const RunConfig& config, bool again) {
  const Curve first = train(config, 1);
  EXPECT_TRUE(std::isfinite(first.losses.back()));
  const auto expect_same = [&](const Curve& other, const char* how) {
    const auto at = std::mismatch(first.losses.begin(), first.losses.end(), other.losses.begin()).first;
    EXPECT_TRUE(at == first.losses.end()) << how << ": first differs at step " << at - first.losses.begin();
    EXPECT_TRUE(same_bits(first.weights, other.weights)) << how;
  };
  if (again) expect_same(train(config, 1), "again");
  expect_same(train(config, 2), "2 threads");
  expect_same(train(config, 3), "3 threads");
  const Threads none(1);  // the next threads are started on the one core
  const OneCore scope;
  expect_same(train(config, 2), "2 threads on one core");
}

// A step of this config takes much longer, so it runs twice only with 2 threads.
TEST(Repeat, ACharModelTrainsToTheSameBits) { expect_repeats(bench_run("char"), false); }

TEST(Repeat, AModelOfPrimesTrainsToTheSameBits) {
  expect_repeats(bench_run("char", {"model.n_layers=3", "model.n_heads=1", "model.d_model=61",
                                    "model.d_hidden=241", "model.block_size=31", "data.vocabulary=67",
                                    "trainer.batch_size=7", "model.dropout=0.1"}),
                 true);
}

}  // namespace
}  // namespace bonsai::test
