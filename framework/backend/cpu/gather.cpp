// Elements of one axis by index, and the scatter-add that is its gradient: all of (outer, axis, inner).
#include "bonsai/framework/backend/cpu/loops.h"

namespace bonsai::cpu::BONSAI_LEVEL {
namespace {

bool in_range(View index, int64_t n, IndexError* index_error) {
  for (int64_t i = 0; i < index.shape.elements(); ++i) {
    const int64_t k = index.as<int32_t>()[i];
    if (k >= 0 && k < n) continue;
    *index_error = {1, i, k, n};
    return false;
  }
  return true;
}

// f(element of the index, element that it names) for all m of each line, in order. An index that comes twice
// adds twice, in an order that does not depend on the threads.
template <class F>
void for_lines(const Shape& index, int64_t n, const int32_t* ids, F f) {
  const int64_t m = index.dim[1], inner = index.dim[2];
  for_rows(index.dim[0] * inner, m, [&](int64_t line) {
    const int64_t outer = line / inner, i = line % inner;
    for (int64_t k = 0; k < m; ++k) {
      const int64_t at = (outer * m + k) * inner + i;
      f(at, (outer * n + ids[at]) * inner + i);
    }
  });
}

}  // namespace

void gather(View x, View index, MutView y, IndexError* index_error) {
  const int64_t n = x.shape.dim[1];
  if (!in_range(index, n, index_error)) return;
  for_lines(index.shape, n, index.as<int32_t>(),
            [&](int64_t at, int64_t named) { y.as<real>()[at] = x.as<real>()[named]; });
}

void scatter_add(View index, View y, MutView x, IndexError* index_error) {
  const int64_t n = x.shape.dim[1];
  if (!in_range(index, n, index_error)) return;
  for_lines(index.shape, n, index.as<int32_t>(),
            [&](int64_t at, int64_t named) { x.as<real>()[named] += y.as<real>()[at]; });
}

}  // namespace bonsai::cpu::BONSAI_LEVEL
