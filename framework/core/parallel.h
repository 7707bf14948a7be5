// The thread pool. Work is split into tiles by shape alone, never by the number of threads, and each
// partial result belongs to a tile. Results are therefore bit-identical for any number of threads.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

namespace bonsai {

// Number of threads that run tiles, including the caller. The default is BONSAI_THREADS or, if that is not
// set, one thread per processor that the process may use (limits.h). More threads are not faster, but they do
// not spin.
int threads();
void set_threads(int count);  // 1 to 1024

// Calls tile(context, i, worker) once for each i in [0, count), in any order on at most `workers` threads,
// and returns when all calls are done. Concurrent calls have different `worker` numbers in [0, workers): use
// them to choose scratch memory, never to choose where a result goes. A tile must not throw. If run_tiles is
// called from within a tile, or while another thread uses the pool, the calling thread runs all tiles.
void run_tiles(int64_t count, int workers, void (*tile)(void* context, int64_t index, int worker),
               void* context);

// f(index, worker)
template <class F>
void run_tiles(int64_t count, int workers, F&& f) {
  using Tile = std::remove_reference_t<F>;
  run_tiles(
      count, workers,
      [](void* context, int64_t i, int worker) { (*static_cast<Tile*>(context))(i, worker); }, &f);
}
// f(index)
template <class F>
void run_tiles(int64_t count, F&& f) {
  run_tiles(count, std::numeric_limits<int>::max(), [&](int64_t i, int) { f(i); });
}

}  // namespace bonsai
