#include "bonsai/framework/core/shape.h"

#include <fmt/format.h>

#include <algorithm>

#include "bonsai/framework/core/error.h"
#include "bonsai/framework/core/tensor.h"  // fmt::formatter<Shape>

namespace bonsai {

Shape::Shape(std::initializer_list<int64_t> sizes)
    : Shape(std::span<const int64_t>(sizes.begin(), sizes.size())) {}

Shape::Shape(std::span<const int64_t> sizes) {
  check(sizes.size() <= kMaxRank, "shape", "a tensor has at most {} axes, got {}", kMaxRank,
        sizes.size());
  for (int64_t size : sizes) {
    check(size >= 0, "shape", "the size of axis {} is {}; it must be at least 0", rank, size);
    dim[rank++] = size;
  }
}

bool Shape::operator==(const Shape& other) const {
  return rank == other.rank && std::equal(dim, dim + rank, other.dim);
}

std::string Shape::str() const {
  return fmt::format("({})", fmt::join(dim, dim + rank, ","));
}

Shape reduced(const Shape& shape, int axis, bool keep) {
  Shape out = shape;
  if (keep) {
    out.dim[axis] = 1;
  } else {
    std::copy(shape.dim + axis + 1, shape.dim + shape.rank, out.dim + axis);
    --out.rank;
  }
  return out;
}

Shape broadcast(const char* op, const Shape& a, const Shape& b) {
  Shape out;
  out.rank = std::max(a.rank, b.rank);
  for (int i = 1; i <= out.rank; ++i) {
    const int64_t from_a = i <= a.rank ? a[-i] : 1;
    const int64_t from_b = i <= b.rank ? b[-i] : 1;
    check(from_a == from_b || from_a == 1 || from_b == 1, op, "shapes do not broadcast: {} and {}",
          a, b);
    out[-i] = from_a == 1 ? from_b : from_a;
  }
  return out;
}

bool broadcasts_to(const Shape& from, const Shape& to) {
  if (from.rank > to.rank) return false;
  for (int i = 1; i <= from.rank; ++i)
    if (from[-i] != to[-i] && from[-i] != 1) return false;
  return true;
}

size_t checked_bytes(const Shape& shape, size_t element) {
  size_t bytes = element;
  bool overflow = false, none = false;
  for (int i = 0; i < shape.rank; ++i) {
    none |= shape.dim[i] == 0;
    if (shape.dim[i]) overflow |= __builtin_mul_overflow(bytes, static_cast<size_t>(shape.dim[i]), &bytes);
  }
  check(!overflow && bytes <= (size_t{1} << 62), "shape", "{} is too large: it exceeds 2^62 bytes", shape);
  return none ? 0 : bytes;
}

}  // namespace bonsai
