// What kernels see of a tensor: where its elements are, how many, of which type. Contiguous, row-major.
#pragma once

#include "bonsai/framework/core/dtype.h"
#include "bonsai/framework/core/shape.h"

namespace bonsai {

struct View {
  const void* data = nullptr;  // null: this optional tensor was not given
  Shape shape;
  DType dtype = DType::f32;

  template <class T>
  [[gnu::always_inline]] const T* as() const {
    return static_cast<const T*>(data);
  }
};

struct MutView {
  void* data = nullptr;  // null: this result is not wanted
  Shape shape;
  DType dtype = DType::f32;

  template <class T>
  [[gnu::always_inline]] T* as() const {
    return static_cast<T*>(data);
  }
};

// A running gradient: the kernel adds to it, or overwrites it where nothing has been added yet.
struct GradView {
  void* data = nullptr;  // null: this gradient is not wanted
  bool add = false;

  template <class T>
  [[gnu::always_inline]] T* as() const {
    return static_cast<T*>(data);
  }
};

}  // namespace bonsai
