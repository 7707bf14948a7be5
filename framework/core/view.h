// What kernels see of a tensor: pointer, shape and dtype. Contiguous, row-major.
#pragma once

#include "bonsai/framework/core/dtype.h"
#include "bonsai/framework/core/shape.h"

namespace bonsai {

struct View {
  const void* data = nullptr;  // null: an optional tensor that was not given
  Shape shape;
  DType dtype = DType::f32;

  // The elements as T, which must be the element type.
  template <class T>
  [[gnu::always_inline]] const T* as() const {
    return static_cast<const T*>(data);
  }
};

struct MutView {
  void* data = nullptr;  // null: this result is not needed
  Shape shape;
  DType dtype = DType::f32;

  // The elements as T, which must be the element type.
  template <class T>
  [[gnu::always_inline]] T* as() const {
    return static_cast<T*>(data);
  }
};

// A gradient that is being accumulated: the kernel adds to it if `add` is true, and overwrites it otherwise.
struct GradView {
  void* data = nullptr;  // null: this gradient is not needed
  bool add = false;

  // The elements as T, which must be the element type.
  template <class T>
  [[gnu::always_inline]] T* as() const {
    return static_cast<T*>(data);
  }
};

}  // namespace bonsai
