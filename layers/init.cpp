#include "layers/init.h"

namespace bonsai {

Tensor initial_tensor(const Shape& shape, const Initial& initial, DType dtype, Device device, RandomKey key) {
  checked_bytes(shape, size_of(DType::f64));  // before anything is allocated
  const auto fill = [&]<class T>(T) {
    std::vector<T> values(static_cast<size_t>(shape.elements()), static_cast<T>(initial.mean));
    if (initial.deviation > 0)
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<T>(initial.mean + initial.deviation * random_normal(key, i));
    return from<T>(shape, values, device);
  };
  return dtype == DType::f64 ? fill(double{}) : fill(float{});
}

}  // namespace bonsai
