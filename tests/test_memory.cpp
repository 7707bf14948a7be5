// The layers below the ops: memory must be returned to the pool and outlive its users, invalid shapes must be
// rejected before memory is allocated, and random numbers must match the published ones and never repeat.
#include <cstdint>
#include <limits>
#include <set>

#include "bonsai/framework/autograd/arena.h"
#include "bonsai/framework/autograd/dispatch.h"
#include "bonsai/framework/core/parallel.h"
#include "bonsai/framework/ops/ops.h"
#include "bonsai/tests/support.h"

// Makes the sanitizers return null for too large a size, as malloc does.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }
extern "C" const char* __tsan_default_options() { return "allocator_may_return_null=1"; }

namespace bonsai::test {
namespace {

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// ---- The pool, over a device of 1 MiB.

int64_t device_bytes = 0, device_blocks = 0;

void* limited_allocate(size_t bytes, size_t) {
  if (device_bytes + static_cast<int64_t>(bytes) > 1 << 20) return nullptr;
  auto* block = static_cast<size_t*>(std::malloc(bytes + 64));
  *block = bytes;
  device_bytes += static_cast<int64_t>(bytes), ++device_blocks;
  return reinterpret_cast<char*>(block) + 64;
}
void limited_release(void* block) {
  void* start = static_cast<char*>(block) - 64;
  device_bytes -= static_cast<int64_t>(*static_cast<size_t*>(start)), --device_blocks;
  std::free(start);
}
void plain_copy(void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); }

struct SmallDevice {
  Pool pool{DeviceMemory{limited_allocate, limited_release, plain_copy, [] {}}};
  ~SmallDevice() {
    pool.trim();
    EXPECT_EQ(device_blocks, 0);
  }
};

TEST(Pool, LosesAtMostAnEighthToRounding) {
  SmallDevice device;
  for (size_t bytes = 1; bytes <= 1 << 19; bytes += 1 + bytes / 61) {
    void* block = device.pool.take(bytes);
    const auto used = device.pool.statistics().in_use;
    EXPECT_GE(used, static_cast<int64_t>(bytes));
    EXPECT_LE(static_cast<double>(used), std::max(64.0, 1.125 * static_cast<double>(bytes))) << bytes;
    device.pool.give_back(block, bytes);
    EXPECT_EQ(device.pool.statistics().in_use, 0) << bytes;
    device.pool.trim();
  }
  for (size_t bytes : {size_t{1}, size_t{65}, size_t{1000}, size_t{100003}}) {
    void* block = pool({}).take(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % 64, 0u) << bytes;
    pool({}).give_back(block, bytes);
  }
}

// The host's small blocks are cut from slabs and are kept for reuse; large blocks are returned to the system.
TEST(Pool, TrimReturnsTheLargeBlocksOfTheHostAndKeepsTheSmall) {
  Pool& host = pool({});
  host.trim();
  const int64_t kept = host.statistics().cached;
  constexpr size_t kSmall = 1000 << 10, kLarge = 4 << 20;
  void *small = host.take(kSmall), *large = host.take(kLarge);
  const int64_t before = host.statistics().cached;
  EXPECT_LE(before, kept);
  host.give_back(small, kSmall), host.give_back(large, kLarge);
  EXPECT_EQ(host.statistics().cached, before + (int64_t{1} << 20) + (4 << 20));
  host.trim();
  EXPECT_EQ(host.statistics().cached, before + (int64_t{1} << 20));
  EXPECT_EQ(host.take(kSmall), small);
  host.give_back(small, kSmall);
}

TEST(Pool, ABlockComesBackWithoutTheDevice) {
  SmallDevice device;
  void* first = device.pool.take(1000);
  void* second = device.pool.take(1000);
  EXPECT_NE(first, second);
  device.pool.give_back(first, 1000);
  EXPECT_EQ(device.pool.take(970), first);  // the same size class
  device.pool.give_back(first, 970);
  device.pool.give_back(second, 1000);
  const Pool::Statistics s = device.pool.statistics();
  EXPECT_EQ(s.misses, 2);
  EXPECT_EQ(s.in_use, 0);
  EXPECT_EQ(s.peak, 2 * 1024);
  EXPECT_EQ(s.cached, 2 * 1024);
  device.pool.trim();
  EXPECT_EQ(device.pool.statistics().cached, 0);
  EXPECT_EQ(device_blocks, 0);
}

TEST(Pool, CachedBlocksGoBeforeMemoryRunsOut) {
  SmallDevice device;
  void* large = device.pool.take(700 << 10);
  device.pool.give_back(large, 700 << 10);
  void* other = device.pool.take(600 << 10);  // fits only after the cached block is released
  const auto before = device.pool.statistics();
  EXPECT_EQ(before.cached, 0);
  const std::string error = error_of([&] { device.pool.take(500000); });
  EXPECT_TRUE(has(error, "out of memory: cannot allocate 500000 bytes")) << error;
  EXPECT_EQ(device.pool.statistics().in_use, before.in_use);
  void* small = device.pool.take(100);
  device.pool.give_back(small, 100);
  device.pool.give_back(other, 600 << 10);
}

TEST(Memory, MoreThanThereIsIsAnErrorThatNamesTheBytes) {
  const auto before = pool({}).statistics().in_use;
  const std::string error = error_of([] { zeros({int64_t{1} << 45}); });
  EXPECT_TRUE(has(error, "out of memory: cannot allocate 140737488355328 bytes")) << error;
  EXPECT_EQ(pool({}).statistics().in_use, before);
  EXPECT_EQ(sum(full({3}, 2)).item(), 6);
}

// Repeats the step of a small model: the memory of the first step is enough for all others.
TEST(Memory, ATrainingStepTakesNothingNewFromTheSecondOn) {
  const Threads one(1);  // tiles that run at the same time each need scratch memory
  Parameter table{"table", random_tensor({11, 8}, DType::f32), true},
  w{"w", random_tensor({8, 8}, DType::f32), true};
  Parameter gain{"gain", full({8}, 1), false}, bias{"bias", zeros({8}), false};
  ParameterArena arena({&table, &w, &gain, &bias});
  const Tensor ids = tensor({2, 5}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, DType::i32);
  Pool::Statistics second;
  for (int step = 0; step < 6; ++step) {
    {
      Tape tape;
      const Tensor x = embedding(table.value, ids), h = layer_norm(x, gain.value, bias.value, 1e-5);
      const Tensor a = scaled_dot_product_attention(h, h, h, {.n_heads = 2, .mask = {.causal = true}});
      const Tensor y = add(x, gelu(linear(a, w.value)));
      tape.backward(cross_entropy(linear(y, table.value), ids));
    }
    const Tensor update = scale(arena.gradients(), -0.1);
    kernels(update).accumulate(view(update), mut(arena.values()));
    arena.zero_gradients();
    const auto now = pool({}).statistics();
    if (step == 1) second = now;
    if (step <= 1) continue;
    EXPECT_EQ(now.misses, second.misses) << "step " << step;
    EXPECT_EQ(now.peak, second.peak);
    EXPECT_LE(now.in_use, second.in_use + 128);  // the `update` of this step
  }
}

// Which tiles run at the same time is random, but the scratch memory of an op must not be. If it were, about
// one pass in a hundred would take more than those before it.
TEST(Memory, TheScratchOfTilesDoesNotDependOnWhoWasFree) {
  const Threads two(2);
  const Tensor q = random_tensor({1, 32, 16}, DType::f32);
  int late = 0;
  for (int trial = 0; trial < 300; ++trial) {
    pool({}).trim();
    int64_t second = 0;
    for (int step = 0; step < 10; ++step) {
      Tape tape;
      const Tensor x = tape.watch(q);
      tape.backward(sum(scaled_dot_product_attention(x, x, x, {.n_heads = 2, .mask = {.causal = true}})));
      const int64_t misses = pool({}).statistics().misses;
      if (step <= 1) second = misses;
      late += misses != second;
    }
  }
  EXPECT_EQ(late, 0) << "steps after the second took memory from the system";
}

TEST(Memory, ATensorKeepsItsValuesWhileOthersComeAndGo) {
  const Tensor kept = random_tensor({33}, DType::f32);
  const auto values = kept.values();
  for (int64_t n = 1; n < 200; ++n) {
    const Tensor passing = full({n}, 7), again = add(passing, passing);
    if (n % 50 == 0) pool({}).trim();
  }
  EXPECT_EQ(kept.values(), values);
}

TEST(Memory, SomeoneElsesBytesAreReadOnlyWhereTheySaySoAndKeptAlive) {
  auto owner = std::make_shared<std::vector<float>>(std::vector<float>{1, 2, 3, 4});
  std::weak_ptr<std::vector<float>> alive = owner;
  Tensor x(std::make_shared<Storage>(owner->data(), 16, Device{}, owner, /*read_only=*/true), 0, {2, 2},
           DType::f32);
  owner.reset();
  Tensor part = reshape(slice(x, 0, 1, 2), {2});
  for (const auto& write : std::vector<std::function<void()>>{[&] { x.mutable_data(); },
      [&] { x.mutable_span<float>(); }, [&] { mut(part); }})
    EXPECT_TRUE(has(error_of(write), "read-only; copy() it first"));
  expect_values(neg(x), {-1, -2, -3, -4});
  EXPECT_FALSE(x.sole_owner());
  Tensor own = x.copy();
  own.mutable_span<float>()[0] = 9;
  expect_values(x, {1, 2, 3, 4});
  x = Tensor();
  expect_values(part, {3, 4});
  part = Tensor();
  EXPECT_TRUE(alive.expired());
}

TEST(Shape, SizesThatMakeNoSenseAreRefusedBeforeTheyAreAllocated) {
  constexpr int64_t k32 = int64_t{1} << 32;
  EXPECT_TRUE(has(error_of([] { Shape{1, 1, 1, 1, 1, 1, 1}; }), "at most 6 axes, got 7"));
  EXPECT_TRUE(has(error_of([] { Shape{2, -3}; }), "axis 1 is -3"));
  // An axis of size 0 does not make a shape valid: strides are products of the other sizes.
  const Shape too_large[] =
      {{k32, k32}, {k32, k32, 4}, {int64_t{1} << 62, 2}, {std::numeric_limits<int64_t>::max()}, {k32, k32, 0},
       {0, k32, k32}};
  for (const Shape& shape : too_large) {
    EXPECT_TRUE(has(error_of([&] { empty(shape); }), shape.str() + " is too large: it exceeds 2^62 bytes"))
        << shape.str();
    EXPECT_TRUE(has(error_of([&] { reshape(zeros({0}), shape); }), shape.str())) << shape.str();
  }
  EXPECT_EQ(empty({4, 0}).elements(), 0);
  EXPECT_EQ(error_of([] { empty({4, 0}).values(); }), "no error");
}

TEST(TensorHandle, ConvertsOnlyWhatFits) {
  for (const DType dtype : {DType::f32, DType::f64, DType::i32}) {
    const Tensor x = tensor({2, 2}, {1, -2, 3, 4}, dtype);
    expect_values(x, {1, -2, 3, 4});
    for (const DType other : {DType::f32, DType::f64, DType::i32}) expect_values(x.to(other), {1, -2, 3, 4});
    EXPECT_TRUE(has(error_of([&] { x.item(); }), "one element"));
    EXPECT_EQ(tensor({1, 1}, {7}, dtype).item(), 7);
    EXPECT_TRUE(has(error_of([&] { tensor({3}, {1, 2}, dtype); }), "needs 3 values, got 2"));
    EXPECT_TRUE(has(error_of([&] { dtype == DType::f32 ? (void)x.span<double>() : (void)x.span<float>(); }),
                    "is not a"));
  }
  expect_values(tensor({2}, {2147483647, -2147483648.0}, DType::i32), {2147483647, -2147483648.0});
  for (const double bad : {2147483648.0, -2147483649.0, 0.5, double{NAN}, double{INFINITY}, 1e300}) {
    EXPECT_TRUE(has(error_of([&] { tensor({1}, {bad}, DType::i32); }), "not an i32 number")) << bad;
    EXPECT_TRUE(has(error_of([&] { full({1}, bad, DType::i32); }), "not an i32 number")) << bad;
  }
}

TEST(TensorHandle, AnAliasSeesTheSameElementsAndNoOthers) {
  Tensor x = tensor({2, 3}, {0, 1, 2, 3, 4, 5});
  Tensor row = x.alias({3}, 3);
  row.mutable_span<float>()[1] = 40;
  expect_values(x, {0, 1, 2, 3, 40, 5});
  expect_values(row.alias({2}, -1), {2, 3});  // a negative offset within the storage
  EXPECT_FALSE(x.sole_owner());
  EXPECT_TRUE(x.copy().sole_owner());
  EXPECT_EQ(x.storage()->version, row.storage()->version);
  EXPECT_TRUE(has(error_of([&] { x.alias({7}); }), "does not fit"));
  EXPECT_TRUE(has(error_of([&] { row.alias({1}, 3); }), "does not fit"));
  EXPECT_TRUE(has(error_of([&] { x.alias({2}, -1); }), "does not fit"));
  EXPECT_TRUE(has(error_of([&] { row.alias({2}, -4); }), "does not fit"));
}

// ---- Random numbers.

// Random123's published vectors for philox4x32-10.
TEST(Random, NumbersAreThePublishedOnes) {
  const struct {
    RandomKey key;
    uint64_t block;
    uint32_t word[4];
  } rows[] = {{{0, 0}, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
              {{~uint64_t{0}, ~uint64_t{0}}, ~uint64_t{0}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
              {{0x299f31d0a4093822, 0x0370734413198a2e}, 0x85a308d3243f6a88,
               {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}};
  for (const auto& row : rows)
    for (int i = 0; i < 4; ++i) EXPECT_EQ(philox(row.key, row.block).word[i], row.word[i]) << i;
  for (uint64_t i = 0; i < 12; ++i) EXPECT_EQ(random_word({3, 4}, i), philox({3, 4}, i / 4).word[i % 4]);
  EXPECT_EQ(dropout_threshold(0), 0u);
  EXPECT_EQ(dropout_threshold(0.5), uint64_t{1} << 31);
  EXPECT_EQ(dropout_threshold(1), uint64_t{1} << 32);
}

TEST(Random, InitialValuesHaveTheirDistribution) {
  constexpr int kDraws = 200000;
  const RandomKey key = random_key(1, "weight");
  double uniform = 0, mean = 0, square = 0, cube = 0, fourth = 0;
  for (uint64_t i = 0; i < kDraws; ++i) {
    const double u = random_uniform(key, i), z = random_normal(key, i);
    ASSERT_TRUE(u >= 0 && u < 1 && std::isfinite(z));
    uniform += u, mean += z, square += z * z, cube += z * z * z, fourth += z * z * z * z;
  }
  EXPECT_NEAR(uniform / kDraws, 0.5, 0.003);  // at least four standard deviations
  EXPECT_NEAR(mean / kDraws, 0, 0.01);
  EXPECT_NEAR(square / kDraws, 1, 0.015);
  EXPECT_NEAR(cube / kDraws, 0, 0.04);
  EXPECT_NEAR(fourth / kDraws, 3, 0.1);
}

TEST(Random, NoTwoDrawsAreAlikeAndACopyReplays) {
  std::set<std::pair<uint64_t, uint64_t>> keys;
  std::set<double> numbers;
  size_t draws = 0;
  for (const uint64_t seed : {0, 1, 2})
    for (const uint32_t step : {0u, 1u, 65536u, 4294967295u})
      for (const uint16_t micro_batch : {0, 1, 65535})
        for (const char* path : {"", "block.0.dropout", "block.1.dropout"}) {
          RandomStream stream{seed, step, micro_batch}, replay = stream;
          for (int call = 0; call < 3; ++call, ++draws) {
            const RandomKey key = stream.draw(path), same = replay.draw(path);
            EXPECT_TRUE(key.key == same.key && key.counter == same.counter);
            keys.insert({key.key, key.counter});
            numbers.insert(random_uniform(key, 0));
          }
        }
  EXPECT_EQ(keys.size(), draws);
  EXPECT_EQ(numbers.size(), draws);
}

// A layer that draws very often in one step, as in the generation of a long text.
TEST(Random, AStreamNeverComesRoundToItsFirstNumbers) {
  RandomStream stream;
  std::vector<uint64_t> counters;
  const std::string error = error_of([&] {
    for (int i = 0; i < 70000; ++i) counters.push_back(stream.draw("dropout").counter);
  });
  EXPECT_TRUE(has(error, "a micro-batch draws at most 65535 times")) << error;
  EXPECT_EQ(counters.size(), 65535u) << "all that the error allows";
  std::sort(counters.begin(), counters.end());
  EXPECT_EQ(std::adjacent_find(counters.begin(), counters.end()), counters.end());
}

TEST(Memory, AnAliasFarBeyondItsTensorIsRefused) {
  const Tensor x = zeros({4});
  for (int64_t offset : {int64_t{4}, int64_t{1} << 40, int64_t{1} << 62})
    EXPECT_NE(error_of([&] { x.alias({1}, offset); }).find("does not fit"), std::string::npos) << offset;
  EXPECT_NE(error_of([&] { split(x, 0, {1, INT64_MAX}); }).find("has 3 left"), std::string::npos);
}

TEST(Memory, IdsAreSlicedAlongAnyAxis) {
  const Tensor ids = tensor({2, 3}, {1, 2, 3, 4, 5, 6}, DType::i32);
  expect_values(slice(ids, 1, 1, 3), {2, 3, 5, 6});
  expect_values(slice(ids, 0, 1, 2), {4, 5, 6});
}

}  // namespace
}  // namespace bonsai::test
