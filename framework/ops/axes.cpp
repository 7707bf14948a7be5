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

}  // namespace bonsai
