// Gathers rows of a table by id; the backward pass scatter-adds their gradients.
#include "bonsai/framework/backend/cpu/loops.h"

namespace bonsai::cpu::BONSAI_LEVEL {

void embedding(View table, View ids, MutView y, IndexError* index_error) {
  const int64_t rows = table.shape.dim[0], n = table.shape.dim[1], count = ids.shape.elements();
  for (int64_t i = 0; i < count; ++i) {
    const int64_t id = ids.as<int32_t>()[i];
    if (id >= 0 && id < rows) continue;
    *index_error = {1, i, id, rows};
    return;
  }
  for_rows(count, n, [&](int64_t i) {
    const real* in = table.as<real>() + ids.as<int32_t>()[i] * n;
    real* out = y.as<real>() + i * n;
    for (int64_t j = 0; j < n; ++j) out[j] = in[j];
  });
}

// Each tile owns some columns and adds the rows of all ids in order, so repeated ids need no atomics and
// the order of additions does not depend on the threads.
void embedding_backward(View ids, View dy, int64_t rows, GradView dtable) {
  const int64_t count = ids.shape.elements(), n = dy.shape[-1];
  real* table = dtable.as<real>();
  for_ranges(n, larger(16, kGrain / larger(1, count)), [&](int64_t begin, int64_t end) {
    if (!dtable.add)
      for (int64_t r = 0; r < rows; ++r) fill(table + r * n + begin, end - begin, 0);
    for (int64_t i = 0; i < count; ++i) {
      const real* d = dy.as<real>() + i * n;
      real* out = table + ids.as<int32_t>()[i] * n;
      for (int64_t j = begin; j < end; ++j) out[j] += d[j];
    }
  });
}

}  // namespace bonsai::cpu::BONSAI_LEVEL
