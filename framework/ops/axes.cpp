#include "bonsai/framework/ops/axes.h"

#include <algorithm>

namespace bonsai {

void check_axes(std::string_view op, const char* operand, const Tensor& x, std::string_view layout) {
  const bool more = layout.starts_with("(...,");
  const int axes = static_cast<int>(std::count(layout.begin(), layout.end(), ',')) + !more;
  if (x && (more ? x.rank() >= axes : x.rank() == axes)) [[likely]]
    return;
  const bool lacks_batch = x && x.rank() + 1 == axes && layout.starts_with("(batch,");
  fail(op, "{} must be {}, got {}{}", operand, layout, x,
       lacks_batch ? "; add a batch axis: (1," + x.shape().str().substr(1) : "");
}

Shape around(const Shape& x, int axis) {
  Shape s{1, x.dim[axis], 1};
  for (int i = 0; i < axis; ++i) s.dim[0] *= x.dim[i];
  for (int i = axis + 1; i < x.rank; ++i) s.dim[2] *= x.dim[i];
  return s;
}

View around(const Tensor& x, int axis) {
  View v = view(x);
  v.shape = around(x.shape(), axis);
  return v;
}

}  // namespace bonsai
