// Counter-based random numbers: Philox4x32-10.       Salmon et al. 2011, "Parallel random numbers:
// as easy as 1, 2, 3", doi:10.1145/2063384.2063405
//
// Each number is a function of the seed, the layer's path, the step, the micro-batch, the index of the
// draw within the micro-batch, and the element's index. Therefore replays, numbers of threads and devices
// agree bit for bit.
#pragma once

#include <cstdint>
#include <string_view>

#include "bonsai/framework/core/level.h"

namespace bonsai {

// Identifies the random numbers of one tensor.
struct RandomKey {
  uint64_t key = 0;      // derived from the seed and the path
  uint64_t counter = 0;  // step, micro-batch and call
};

// The random stream of a run, carried by a Context. A copy replays the same numbers.
struct RandomStream {
  uint64_t seed = 0;
  uint32_t step = 0;
  uint16_t micro_batch = 0;
  uint16_t call = 0;  // index of the next draw, so that a layer used twice draws different numbers

  // The key of the next draw of the layer at `path`. Throws after 65,535 draws in a micro-batch.
  RandomKey draw(std::string_view path);
};

// The key of a stream that a seed and a name identify.
RandomKey random_key(uint64_t seed, std::string_view path);
// Element i of a tensor of samples from N(0, 1).
double random_normal(RandomKey key, uint64_t i);
// Element i of a tensor of uniform samples from [0, 1).
double random_uniform(RandomKey key, uint64_t i);

inline namespace BONSAI_LEVEL {

struct Philox {
  uint32_t word[4];
};

// The four random words of block number `block`.
constexpr Philox philox(RandomKey k, uint64_t block) {
  uint32_t c0 = static_cast<uint32_t>(block), c1 = static_cast<uint32_t>(block >> 32);
  uint32_t c2 = static_cast<uint32_t>(k.counter), c3 = static_cast<uint32_t>(k.counter >> 32);
  uint32_t k0 = static_cast<uint32_t>(k.key), k1 = static_cast<uint32_t>(k.key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * c0, b = uint64_t{0xCD9E8D57} * c2;
    c0 = static_cast<uint32_t>(b >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(b);
    c2 = static_cast<uint32_t>(a >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(a);
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return {{c0, c1, c2, c3}};
}

constexpr uint32_t random_word(RandomKey k, uint64_t i) { return philox(k, i / 4).word[i % 4]; }

// Dropout keeps element i if its random word is at least this. Words are compared as integers, so that every
// device and dtype drops the same elements. p = 1 drops every element, since a word has 32 bits.
constexpr uint64_t dropout_threshold(double p) { return static_cast<uint64_t>(p * 4294967296.0); }

}  // namespace BONSAI_LEVEL
}  // namespace bonsai
