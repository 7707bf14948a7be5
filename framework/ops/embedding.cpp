// Rows of a table by id.
#include "bonsai/framework/autograd/record.h"
#include "bonsai/framework/ops/axes.h"
#include "bonsai/framework/ops/broadcast.h"
#include "bonsai/framework/ops/ops.h"

namespace bonsai {

// The gradient is added row by row to the running gradient, so repeated ids accumulate.
Tensor embedding(const Tensor& table, const Tensor& ids) {
  check_floating("embedding", table);
  check_axes("embedding", "the table", table, "(entries,width)");
  check(ids && ids.dtype() == DType::i32, "embedding", "ids must be i32, got {}", ids);
  check(ids.rank() < kMaxRank, "embedding", "ids may have at most {} axes, got {}", kMaxRank - 1, ids);
  Shape shape = ids.shape();
  shape.dim[shape.rank++] = table.size(1);
  Tensor y = empty(shape, table.dtype(), table.device());
  kernels(table).embedding(view(table), view(ids), mut(y), index_error(table.device()));
  check_faults("embedding", table.device());
  return record("embedding", {table}, y, {ids}, table.size(0),
                [](Tensor dy, Saved& s, Sink& sink, int64_t rows) -> Grads {
                  auto dtable = sink.into(0);
                  kernels(dy).embedding_backward(view(s[0]), view(dy), rows, grad_view(dtable));
                  return {};
                });
}

}  // namespace bonsai
