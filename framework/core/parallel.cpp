#include "bonsai/framework/core/parallel.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "bonsai/framework/core/error.h"
#include "bonsai/framework/core/limits.h"

namespace bonsai {
namespace {

constexpr int kMaxThreads = 1024;
// Iterations that a thread spins before it sleeps (kSpins) or yields (kPatience). It spins only if there are
// at least as many processors as threads; otherwise it would keep another thread from running.
constexpr int kSpins = 2000;  // about 10 us; most gaps between two ops are shorter
// About 300 us, the duration of a tile. If another program is running, a thread that yields waits for its
// whole time slice, several milliseconds.
constexpr int kPatience = 25000;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// A thread's share of the tiles. With fixed shares, a kernel's input is often in the cache of the core that
// wrote it.
struct alignas(64) Share {
  std::atomic<int64_t> next{0};
  int64_t end = 0;
};

struct Job {
  int64_t count;
  void (*tile)(void*, int64_t, int);
  void* context;
  Share* shares;
  int workers;
  std::atomic<int64_t> done{0};

  // Runs the worker's own share, then what is left of the others'.
  void run(int worker) {
    int64_t finished = 0;
    for (int other = 0; worker < workers && other < workers; ++other) {
      Share& share = shares[(worker + other) % workers];
      for (int64_t i; (i = share.next.fetch_add(1, std::memory_order_relaxed)) < share.end; ++finished)
        tile(context, i, worker);
    }
    done.fetch_add(finished, std::memory_order_acq_rel);
  }
};

thread_local bool inside_tile = false;

class ThreadPool {
 public:
  explicit ThreadPool(int workers) : size_(workers + 1), shares_(static_cast<size_t>(size_)) {
    try {
      for (int i = 0; i < workers; ++i) workers_.emplace_back([this, i] { work(i + 1); });
    } catch (const std::system_error&) {
      const size_t started = workers_.size() + 1;
      stop();
      fail("threads", "only {} of {} threads could be started; use fewer", started, size_);
    }
  }
  ~ThreadPool() { stop(); }

  int size() const { return size_; }

  // Waits for a run in progress and stops the workers. After that, run() executes all tiles on the calling
  // thread.
  void retire() {
    std::lock_guard busy(busy_);
    stop();
  }

  // Returns false, and runs nothing, if another thread is using the pool.
  bool run(int64_t count, int workers, void (*tile)(void*, int64_t, int), void* context) {
    std::unique_lock busy(busy_, std::try_to_lock);
    if (!busy) return false;
    workers = std::min(workers, size_);
    for (int w = 0; w < workers; ++w) {
      Share& share = shares_[static_cast<size_t>(w)];
      share.next.store(count * w / workers, std::memory_order_relaxed);
      share.end = count * (w + 1) / workers;
    }
    Job job{count, tile, context, shares_.data(), workers};
    job_.store(&job, std::memory_order_release);
    generation_.fetch_add(1, std::memory_order_seq_cst);
    wake_sleepers();
    inside_tile = true;
    job.run(0);
    inside_tile = false;
    job_.store(nullptr, std::memory_order_seq_cst);
    // From here on no worker can join. Those that have joined must leave before `job` is destroyed.
    int64_t spins = 0;
    while (job.done.load(std::memory_order_acquire) < count || guests_.load() > 0) {
      pause();
      if (++spins > (crowded_ ? 0 : kPatience) && spins % 64 == 0) std::this_thread::yield();
    }
    return true;
  }

 private:
  void stop() {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
      generation_.fetch_add(1);
    }
    wake_.notify_all();
    for (auto& worker : workers_) worker.join();
    workers_.clear();
  }

  void work(int worker) {
    inside_tile = true;
    uint64_t seen = 0;
    while (true) {
      wait_for_job(seen);
      if (stop_) return;
      seen = generation_.load();
      guests_.fetch_add(1, std::memory_order_seq_cst);
      if (Job* job = job_.load(std::memory_order_seq_cst)) job->run(worker);
      guests_.fetch_sub(1, std::memory_order_release);
    }
  }

  // If the pool is crowded, wakes no more threads than the processors can run.
  void wake_sleepers() {
    if (sleepers_.load(std::memory_order_seq_cst) == 0) return;
    std::lock_guard lock(mutex_);
    if (!crowded_) return wake_.notify_all();
    for (int i = 1; i < std::max(2, processors_); ++i) wake_.notify_one();
  }

  void wait_for_job(uint64_t seen) {
    for (int i = 0; i < (crowded_ ? 0 : kSpins); ++i) {
      if (generation_.load(std::memory_order_acquire) != seen) return;
      pause();
    }
    std::unique_lock lock(mutex_);
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    wake_.wait(lock, [&] { return generation_.load(std::memory_order_seq_cst) != seen; });
    sleepers_.fetch_sub(1, std::memory_order_seq_cst);
  }

  const int size_;
  const int processors_ = processor_limits().usable();
  const bool crowded_ = size_ > processors_;
  std::vector<Share> shares_;
  std::vector<std::thread> workers_;
  std::mutex busy_, mutex_;
  std::condition_variable wake_;
  std::atomic<uint64_t> generation_{0};
  std::atomic<Job*> job_{nullptr};
  std::atomic<int> guests_{0}, sleepers_{0};
  std::atomic<bool> stop_{false};
};

int default_threads() {
  if (const char* text = std::getenv("BONSAI_THREADS")) {
    int n = 0;
    const char* end = text + std::strlen(text);
    const bool whole = std::from_chars(text, end, n).ptr == end;
    check(whole && n >= 1 && n <= kMaxThreads, "threads",
          "BONSAI_THREADS is '{}'; give a number from 1 to {}", text, kMaxThreads);
    return n;
  }
  return std::min(kMaxThreads, processor_limits().usable());
}

struct Current {
  std::mutex mutex;
  // All but the last are retired, but a thread may still use them.
  std::vector<std::unique_ptr<ThreadPool>> pools;
  std::atomic<ThreadPool*> fast{nullptr};
};
Current& current() {
  static Current c;
  return c;
}

ThreadPool& ensure_pool() {
  Current& c = current();
  if (ThreadPool* p = c.fast.load(std::memory_order_acquire)) return *p;
  std::lock_guard lock(c.mutex);
  if (c.pools.empty()) {
    c.pools.push_back(std::make_unique<ThreadPool>(default_threads() - 1));
    c.fast.store(c.pools.back().get(), std::memory_order_release);
  }
  return *c.pools.back();
}

}  // namespace

int threads() { return ensure_pool().size(); }

void set_threads(int count) {
  check(count >= 1 && count <= kMaxThreads, "threads", "the number of threads is {}; it must be 1 to {}",
        count, kMaxThreads);
  Current& c = current();
  std::lock_guard lock(c.mutex);
  if (!c.pools.empty() && c.pools.back()->size() == count) return;
  check(!inside_tile, "threads", "the number of threads cannot change from within a kernel");
  auto pool = std::make_unique<ThreadPool>(count - 1);
  if (!c.pools.empty()) c.pools.back()->retire();
  c.pools.push_back(std::move(pool));
  c.fast.store(c.pools.back().get(), std::memory_order_release);
}

void run_tiles(int64_t count, int workers, void (*tile)(void*, int64_t, int), void* context) {
  if (count > 1 && !inside_tile && ensure_pool().run(count, workers, tile, context)) return;
  for (int64_t i = 0; i < count; ++i) tile(context, i, 0);
}

}  // namespace bonsai
