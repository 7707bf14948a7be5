// A checksum that detects accidental changes. It is not cryptographic.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace bonsai {

// FNV-1a, 64 bits. Any single changed byte changes it.
class Checksum {
 public:
  // Adds bytes.
  void add(const void* data, size_t bytes) {
    const auto* at = static_cast<const unsigned char*>(data);
    for (size_t i = 0; i < bytes; ++i) hash_ = (hash_ ^ at[i]) * 0x100000001b3;
  }
  // Adds a text with its length, so that the texts of a sequence cannot run together.
  void add(const std::string& text) {
    const uint64_t size = text.size();
    add(&size, sizeof size);
    add(text.data(), text.size());
  }
  std::string text() const { return fmt::format("{:016x}", hash_); }

 private:
  uint64_t hash_ = 0xcbf29ce484222325;
};

}  // namespace bonsai
