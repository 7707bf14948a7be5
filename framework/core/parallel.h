// The thread pool. Work is cut into tiles by shape alone, never by the number of threads, and a
// partial result belongs to its tile: the bits of a result do not depend on how many threads ran.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

namespace bonsai {

// Threads that run tiles, the caller included. At first BONSAI_THREADS, else one per processor that the
// process may use (limits.h). More than that run no faster, but burn no time either.
int threads();
void set_threads(int count);  // 1 to 1024

// Runs tile(context, 0 ... count-1, worker), each once, in any order on at most `workers` threads, and returns when
// all are done. Of two that run side by side each has another worker < workers: for memory of its own, never for
// results. A tile must not throw. Called from within a tile, or while another thread uses the pool, it runs the tiles
// itself.
void run_tiles(int64_t count, int workers, void (*tile)(void* context, int64_t index, int worker), void* context);

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
