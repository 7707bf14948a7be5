// The sizes of a tensor's axes, outermost first, and the broadcasting rule.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace bonsai {

inline constexpr int kMaxRank = 6;

// Trivially copyable, so that kernels and backward functions can hold one. The accessors that kernels
// use are always inlined; level.h explains why they must not become symbols.
struct Shape {
  int64_t dim[kMaxRank] = {};
  int rank = 0;

  Shape() = default;
  // Throws if there are more than kMaxRank sizes or one is negative.
  Shape(std::initializer_list<int64_t> sizes);
  explicit Shape(std::span<const int64_t> sizes);

  // Not checked, for kernels: -rank <= axis < rank. Tensor::size() is checked.
  [[gnu::always_inline]] int64_t operator[](int axis) const {
    return dim[axis < 0 ? rank + axis : axis];
  }
  [[gnu::always_inline]] int64_t& operator[](int axis) { return dim[axis < 0 ? rank + axis : axis]; }
  [[gnu::always_inline]] int64_t elements() const {
    int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= dim[i];
    return n;
  }
  // Product of all sizes but the last; 1 for a vector.
  [[gnu::always_inline]] int64_t rows() const {
    int64_t n = 1;
    for (int i = 0; i + 1 < rank; ++i) n *= dim[i];
    return n;
  }

  bool operator==(const Shape& other) const;
  std::string str() const;  // "(2,3)"
};

// `shape` without `axis`, which is in [0, rank), or, if `keep` is true, with size 1 there.
Shape reduced(const Shape& shape, int axis, bool keep);

// NumPy's rule: sizes are aligned at the last axis. Two sizes are compatible if they are equal or one is 1 or
// missing. Throws an Error in the name of `op` if they are not.
Shape broadcast(const char* op, const Shape& a, const Shape& b);
bool broadcasts_to(const Shape& from, const Shape& to);

// Number of bytes of a tensor whose elements have `element` bytes each. Throws if it exceeds 2^62.
size_t checked_bytes(const Shape& shape, size_t element);

}  // namespace bonsai
