// The seed of a randomised test. It is printed immediately, so that it is known if the test fails, crashes or
// hangs; BONSAI_TEST_SEED=N sets it. This is the only use of std::random_device in tests.
#pragma once

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <stdexcept>
#include <string_view>

namespace bonsai::test {

inline uint64_t random_seed() {
  uint64_t seed = std::random_device{}();
  if (const char* text = std::getenv("BONSAI_TEST_SEED")) {
    const std::string_view digits = text;
    const auto [end, error] = std::from_chars(digits.begin(), digits.end(), seed);
    if (error != std::errc{} || end != digits.end())
      throw std::runtime_error(fmt::format("BONSAI_TEST_SEED is '{}'; give a whole number", text));
  }
  fmt::print(stderr, "random choices of seed {}; BONSAI_TEST_SEED={} repeats them\n", seed, seed);
  return seed;
}

}  // namespace bonsai::test
