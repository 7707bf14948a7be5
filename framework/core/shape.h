// The sizes of a tensor's axes, outermost first, and the rule for broadcasting two of them.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace bonsai {

inline constexpr int kMaxRank = 6;

// Trivially copyable, so that kernels and backward functions may hold one. Accessors that kernels
// use are always inlined: see level.h for why they must not become symbols.
struct Shape {
  int64_t dim[kMaxRank] = {};
  int rank = 0;

  Shape() = default;
  Shape(std::initializer_list<int64_t> sizes);  // throws above kMaxRank axes or below size 0
  explicit Shape(std::span<const int64_t> sizes);

  [[gnu::always_inline]] int64_t operator[](int axis) const {
    return dim[axis < 0 ? rank + axis : axis];
  }
  [[gnu::always_inline]] int64_t& operator[](int axis) { return dim[axis < 0 ? rank + axis : axis]; }
  [[gnu::always_inline]] int64_t elements() const {
    int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= dim[i];
    return n;
  }
  // All axes but the last; 1 for a vector.
  [[gnu::always_inline]] int64_t rows() const {
    int64_t n = 1;
    for (int i = 0; i + 1 < rank; ++i) n *= dim[i];
    return n;
  }

  bool operator==(const Shape& other) const;
  std::string str() const;  // "(2,3)"
};

// 0 <= axis < rank for axis in [-rank, rank); anything else is an error of `op`.
int checked_axis(const char* op, const Shape& shape, int axis);

// The shape without `axis`, or with size 1 there.
Shape reduced(const Shape& shape, int axis, bool keep);

// NumPy's rule: sizes are lined up at the last axis; equal, or one of them 1 or absent.
Shape broadcast(const char* op, const Shape& a, const Shape& b);
bool broadcasts_to(const Shape& from, const Shape& to);

// Bytes of `elements` of that size; an error where the product does not fit.
size_t checked_bytes(const Shape& shape, size_t element);

}  // namespace bonsai
