// The thread pool. Work is cut into tiles by shape alone, never by the number of threads, and a
// partial result belongs to its tile: the bits of a result do not depend on how many threads ran.
#pragma once

#include <cstdint>
#include <type_traits>

namespace bonsai {

// Threads that run tiles, the caller included. At first BONSAI_THREADS, else one a processor.
int threads();
void set_threads(int count);  // 1 to 1024

// Runs tile(context, 0 ... count-1), each once, in any order on any thread, and returns when all are
// done. A tile must not throw. Called from within a tile, or while another thread uses the pool, it
// runs the tiles itself.
void run_tiles(int64_t count, void (*tile)(void* context, int64_t index), void* context);

template <class F>
void run_tiles(int64_t count, F&& f) {
  using Tile = std::remove_reference_t<F>;
  run_tiles(
      count, [](void* context, int64_t i) { (*static_cast<Tile*>(context))(i); }, &f);
}

}  // namespace bonsai
