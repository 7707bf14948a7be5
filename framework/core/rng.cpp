#include "bonsai/framework/core/rng.h"

#include <cmath>
#include <numbers>

#include "bonsai/framework/core/error.h"

namespace bonsai {
namespace {

uint64_t fnv1a(std::string_view text) {
  uint64_t h = 0xcbf29ce484222325;
  for (unsigned char c : text) h = (h ^ c) * 0x100000001b3;
  return h;
}

// splitmix64's finaliser: seeds 1 and 2 give unrelated keys.
uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

RandomKey random_key(uint64_t seed, std::string_view path) {
  return {mix(seed + 0x9e3779b97f4a7c15) ^ fnv1a(path), 0};
}

RandomKey RandomStream::draw(std::string_view path) {
  check(call < UINT16_MAX, "random", "a micro-batch draws at most {} times", UINT16_MAX);
  RandomKey key = random_key(seed, path);
  key.counter = uint64_t{step} << 32 | uint64_t{micro_batch} << 16 | call++;
  return key;
}

double random_uniform(RandomKey key, uint64_t i) {
  const Philox p = philox(key, i);
  return static_cast<double>((uint64_t{p.word[0]} << 32 | p.word[1]) >> 11) * 0x1p-53;
}

double random_normal(RandomKey key, uint64_t i) {
  const Philox p = philox(key, i);
  const double u = (p.word[0] + 1.0) * 0x1p-32;  // (0, 1]: its logarithm is finite
  const double v = p.word[1] * 0x1p-32;
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
}

}  // namespace bonsai
