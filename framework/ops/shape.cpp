// Ops that rearrange elements or only change the shape.
#include <algorithm>

#include "bonsai/framework/autograd/record.h"
#include "bonsai/framework/ops/broadcast.h"
#include "bonsai/framework/ops/ops.h"

namespace bonsai {
namespace {

// Indices [begin, begin + count) of an axis, as blocks of the whole tensor.
struct Window {
  int64_t outer, inner, size, begin, count;  // inner: elements per index of the axis

  Window(const Shape& whole, int axis, int64_t begin, int64_t count)
      : outer(1), inner(1), size(whole.dim[axis]), begin(begin), count(count) {
    for (int i = 0; i < axis; ++i) outer *= whole.dim[i];
    for (int i = axis + 1; i < whole.rank; ++i) inner *= whole.dim[i];
  }
};

const void* offset(const void* data, int64_t elements, DType dtype) {
  return static_cast<const char*>(data) + elements * static_cast<int64_t>(size_of(dtype));
}

// Copies the window of `whole` to `part`. i32 elements are copied as f32, since only their size matters.
void read_window(const Tensor& whole, const Window& w, Tensor& part) {
  const DType moved = whole.dtype() == DType::i32 ? DType::f32 : whole.dtype();
  kernels(whole.device(), moved)
      .copy_blocks({offset(whole.data(), w.begin * w.inner, whole.dtype()), part.mutable_data(), w.outer,
                    w.count * w.inner, w.size * w.inner, w.count * w.inner, false});
}

// Copies `part` to the window of `whole`, or adds it.
void write_window(const Tensor& part, const Window& w, Tensor& whole, bool add) {
  void* to = const_cast<void*>(offset(whole.mutable_data(), w.begin * w.inner, whole.dtype()));
  kernels(whole).copy_blocks({part.data(), to, w.outer, w.count * w.inner, w.count * w.inner,
                              w.size * w.inner, add});
}

}  // namespace

Tensor reshape(const Tensor& x, const Shape& shape) {
  checked_bytes(shape, 1);  // throws if the number of elements overflows
  check(x && x.elements() == shape.elements(), "reshape", "{} does not have the {} elements of {}", x,
        shape.elements(), shape);
  return record("reshape", {x}, x.alias(shape), {}, x.shape(),
                [](Tensor dy, Saved&, Sink&, Shape from) -> Grads { return {dy.alias(from)}; });
}

Tensor permute(const Tensor& x, const std::vector<int>& axes) {
  check_floating("permute", x);
  kernel::Axes order{}, inverse{};
  Shape shape = x.shape();
  uint32_t seen = 0;
  for (size_t i = 0; i < axes.size() && i < kMaxRank; ++i) {
    order.axis[i] = x.checked_axis("permute", axes[i]);
    inverse.axis[order.axis[i]] = static_cast<int>(i);
    shape.dim[i] = x.size(order.axis[i]);
    seen |= 1u << order.axis[i];
  }
  check(axes.size() == static_cast<size_t>(x.rank()) && seen == (1u << x.rank()) - 1, "permute",
        "names {} axes of {}, each of which must be named once", axes.size(), x);
  Tensor y = empty(shape, x.dtype(), x.device());
  kernels(x).permute(view(x), order, mut(y));
  struct Args {
    kernel::Axes inverse;
    Shape from;
  };
  return record("permute", {x}, y, {}, Args{inverse, x.shape()},
                [](Tensor dy, Saved&, Sink&, Args a) -> Grads {
                  Tensor dx = empty(a.from, dy.dtype(), dy.device());
                  kernels(dy).permute(view(dy), a.inverse, mut(dx));
                  return {dx};
                });
}

// The gradient is written to its window of the running gradient, or added to it.
Tensor slice(const Tensor& x, int axis, int64_t begin, int64_t end) {
  check(static_cast<bool>(x), "slice", "needs a tensor, got {}", x);
  const int a = x.checked_axis("slice", axis);
  check(0 <= begin && begin <= end && end <= x.size(a), "slice", "[{}, {}) is not within axis {} of {}",
        begin, end, a, x);
  const Window w(x.shape(), a, begin, end - begin);
  Shape shape = x.shape();
  shape.dim[a] = end - begin;
  Tensor y;
  if (w.outer == 1) {
    y = x.alias(shape, begin * w.inner);
  } else {
    y = empty(shape, x.dtype(), x.device());
    read_window(x, w, y);
  }
  return record("slice", {x}, y, {}, w, [](Tensor dy, Saved&, Sink& sink, Window w) -> Grads {
    auto dx = sink.into(0);
    if (!dx.add) kernels(dy).fill(mut(dx.grad), 0);
    write_window(dy, w, dx.grad, dx.add);
    return {};
  });
}

namespace {

// The sizes of the parts along the axis, for the backward function.
struct Parts {
  static constexpr size_t kMax = 14;
  int axis, count;
  int64_t size[kMax];
};

}  // namespace

Tensor concat(const std::vector<Tensor>& parts, int axis) {
  check(!parts.empty(), "concat", "needs at least one tensor");
  check_floating("concat", parts[0]);
  const int a = parts[0].checked_axis("concat", axis);
  if (parts.size() > Parts::kMax) {  // more than Parts holds: concatenate the first ones
    std::vector<Tensor> rest{concat({parts.begin(), parts.begin() + Parts::kMax}, a)};
    rest.insert(rest.end(), parts.begin() + Parts::kMax, parts.end());
    return concat(rest, a);
  }
  Shape shape = parts[0].shape();
  shape.dim[a] = 0;
  Parts along{a, 0, {}};
  for (const Tensor& part : parts) {
    check_alike("concat", parts[0], part);
    Shape other = part.shape();
    check(other.rank == shape.rank, "concat", "part {} is {}, but part 0 is {}: they must have as many axes",
          along.count, part, parts[0]);
    along.size[along.count++] = std::exchange(other.dim[a], parts[0].size(a));
    check(other == parts[0].shape(), "concat", "sizes differ away from axis {}: {} and {}", a, parts[0],
          part);
    shape.dim[a] += part.size(a);
  }
  Tensor y = empty(shape, parts[0].dtype(), parts[0].device());
  int64_t at = 0;
  for (const Tensor& part : parts) {
    write_window(part, Window(shape, a, at, part.size(a)), y, false);
    at += part.size(a);
  }
  const std::vector<TensorRef> refs(parts.begin(), parts.end());
  return record("concat", std::span<const TensorRef>(refs), y, {}, along,
                [](Tensor dy, Saved& s, Sink&, Parts p) -> Grads {
                  Grads grads(static_cast<size_t>(p.count));
                  int64_t at = 0;
                  for (int i = 0; i < p.count; at += p.size[i++]) {
                    if (!s.needs(i)) continue;
                    Shape part = dy.shape();
                    part.dim[p.axis] = p.size[i];
                    grads[static_cast<size_t>(i)] = empty(part, dy.dtype(), dy.device());
                    read_window(dy, Window(dy.shape(), p.axis, at, p.size[i]), grads[static_cast<size_t>(i)]);
                  }
                  return grads;
                });
}

std::vector<Tensor> split(const Tensor& x, int axis, const std::vector<int64_t>& sizes) {
  check(static_cast<bool>(x), "split", "needs a tensor, got {}", x);
  const int a = x.checked_axis("split", axis);
  std::vector<Tensor> parts;
  int64_t at = 0;
  for (int64_t size : sizes) {
    check(size >= 0 && size <= x.size(a) - at, "split", "axis {} of {} has {} left for a part of {}", a, x,
          x.size(a) - at, size);
    parts.push_back(slice(x, a, at, at + size));
    at += size;
  }
  check(at == x.size(a), "split", "sizes add up to {}, but axis {} of {} has {}", at, a, x, x.size(a));
  return parts;
}

}  // namespace bonsai
