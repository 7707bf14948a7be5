// A step that allocates memory from the system is slow at unpredictable times, and one that leaks a little
// ends a long run. From the third step on, no memory is allocated from the system and none is leaked.
#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

#include "bonsai/tests/training.h"

namespace {

struct Counts {
  std::atomic<int64_t> calls{0}, maps{0};  // calls of malloc and its relatives, calls of mmap
} counts;

}  // namespace

// Replaces malloc and its relatives: every allocation of this program and its libraries is counted here.
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);

void* malloc(size_t bytes) noexcept {
  ++counts.calls;
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) noexcept {
  ++counts.calls;
  return __libc_calloc(count, bytes);
}
void* realloc(void* block, size_t bytes) noexcept {
  ++counts.calls;
  return __libc_realloc(block, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) noexcept {
  ++counts.calls;
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** block, size_t alignment, size_t bytes) noexcept {
  ++counts.calls;
  return (*block = __libc_memalign(alignment, bytes)) ? 0 : ENOMEM;
}
void* mmap(void* at, size_t bytes, int protection, int flags, int file, off_t offset) noexcept {
  ++counts.maps;
  return reinterpret_cast<void*>(::syscall(SYS_mmap, at, bytes, protection, flags, file, offset));
}
}

namespace bonsai::test {
namespace {

// Reads the value of `key` in a file of /proc/self; returns bytes.
int64_t process(const char* name, const std::string& key) {
  std::ifstream file(std::string("/proc/self/") + name);
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(key + ":")) return std::stoll(line.substr(key.size() + 1)) * 1024;
  ADD_FAILURE() << "no " << key;
  return 0;
}

// While an object of this class exists, the system refuses more memory to this process.
class NoMoreMemory {
 public:
  NoMoreMemory() {
    grow_stack();
    ::getrlimit(RLIMIT_AS, &before_);
    struct rlimit now = before_;
    now.rlim_cur = static_cast<rlim_t>(process("status", "VmSize"));
    EXPECT_EQ(::setrlimit(RLIMIT_AS, &now), 0);
  }
  ~NoMoreMemory() { ::setrlimit(RLIMIT_AS, &before_); }

 private:
  // Touches 1 MiB of stack, because the system extends the stack on first access. The steps that follow need
  // less.
  [[gnu::noinline]] static void grow_stack() {
    [[maybe_unused]] volatile char below[1 << 20];
    below[0] = 0;
  }

  struct rlimit before_;
};

// Bytes that glibc has taken from the system with brk and mmap.
size_t heap() {
  const struct mallinfo2 info = ::mallinfo2();
  return info.arena + info.hblkhd;
}

void expect_no_allocation(const RunConfig& config, int threads, const char* name) {
  const Threads scope(threads);
  Trainer trainer(config);
  constexpr int kFirst = 2, kLast = 20;
  for (int step = 0; step < kFirst; ++step) trainer.step(step);
  const auto misses = pool({}).statistics().misses;
  size_t before = 0;
  std::string error;
  {
    const NoMoreMemory limit;
    before = heap();
    counts.calls = counts.maps = 0;
    error = error_of([&] {
      for (int step = kFirst; step < kLast; ++step) trainer.step(step);
    });
  }
  const int64_t calls = counts.calls, maps = counts.maps;
  EXPECT_EQ(error, "no error");
  EXPECT_EQ(maps, 0);
  EXPECT_LE(heap(), before) << "the heap grew";
  EXPECT_EQ(pool({}).statistics().misses, misses);
  EXPECT_EQ(calls, 0) << name << ", " << threads << " threads, in " << kLast - kFirst << " steps";
}

TEST(Allocations, NothingComesFromTheSystemAfterTheSecondStep) {
  for (const int threads : {1, 2}) {
    expect_no_allocation(bench_run("char"), threads, "char");
    expect_no_allocation(TinyRun().config, threads, "tiny");
    expect_no_allocation(TinyRun({"model.dropout=0.1", "trainer.gradient_accumulation=2"}).config, threads,
                         "with dropout");
    expect_no_allocation(TinyRun({"model.position=rope", "model.norm=rms_norm", "model.mlp=swiglu",
                                  "model.bias=false"}).config,
                         threads, "in the shape of Llama");
  }
}

TEST(Allocations, TheCountersSeeThisProgramsAllocations) {
  const auto calls = counts.calls.load();
  const std::vector<double> block(1000);
  EXPECT_GT(counts.calls, calls) << block.size();
  const NoMoreMemory limit;
  EXPECT_THROW(std::vector<char>(size_t{256} << 20), std::bad_alloc);
}

TEST(Allocations, FiveThousandStepsKeepNothing) {
  const TinyRun run({"model.d_model=8", "model.n_heads=1", "model.block_size=4",
                     "trainer.gradient_accumulation=1"});
  const Threads one(1);  // a second thread could touch its stack late
  Trainer trainer(run.config);
  for (int step = 0; step < 500; ++step) trainer.step(step);
  // smaps_rollup counts the pages when it is read; /proc/self/status may be out of date.
  const auto resident = [] { return process("smaps_rollup", "Anonymous"); };
  resident();  // the first call allocates a buffer
  const int64_t before = resident(), in_use = pool({}).statistics().in_use;
  const size_t held = ::mallinfo2().uordblks;
  for (int step = 500; step < 5500; ++step) trainer.step(step);
  EXPECT_EQ(::mallinfo2().uordblks, held) << "bytes of malloc";
  const int64_t after = resident();
  EXPECT_LE(after, before) << "resident memory grew by " << after - before << " bytes";
  EXPECT_EQ(pool({}).statistics().in_use, in_use);
}

}  // namespace
}  // namespace bonsai::test
