#include "bonsai/layers/init.h"

#include <algorithm>

namespace bonsai {

Tensor initial_tensor(const Shape& whole, const Initial& initial, DType dtype, Device device, RandomKey key,
                      const Part& part) {
  checked_bytes(whole, size_of(DType::f64));  // throws before anything is allocated
  Shape shape = whole;
  check(part.index >= 0 && part.index < part.count && part.axis >= 0 && part.axis < std::max(1, whole.rank) &&
            (part.count == 1 || whole[part.axis] % part.count == 0),
        "parameter", "axis {} of {} has no part {} of {}", part.axis, whole.str(), part.index, part.count);
  if (part.count > 1) shape[part.axis] /= part.count;
  size_t run = 1;  // number of elements of the part that are contiguous in the whole tensor
  for (int axis = part.axis; axis < shape.rank; ++axis) run *= static_cast<size_t>(shape[axis]);
  const auto in_whole = [&, index = static_cast<size_t>(part.index), count = static_cast<size_t>(part.count)](
                            size_t i) { return (i / run * count + index) * run + i % run; };
  const auto fill = [&]<class T>(T) {
    std::vector<T> values(static_cast<size_t>(shape.elements()), static_cast<T>(initial.mean));
    if (initial.std > 0)
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<T>(initial.mean + initial.std * random_normal(key, in_whole(i)));
    return from<T>(shape, values, device);
  };
  return dtype == DType::f64 ? fill(double{}) : fill(float{});
}

}  // namespace bonsai
