// Tensor: a handle to shared storage. Contiguous, row-major; copying a Tensor aliases its elements.
//
// A tensor also records its slot on a tape (see autograd/tape.h) or the parameter whose value it is.
// It never owns the graph.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bonsai/framework/core/device.h"
#include "bonsai/framework/core/dtype.h"
#include "bonsai/framework/core/error.h"
#include "bonsai/framework/core/memory.h"
#include "bonsai/framework/core/shape.h"
#include "bonsai/framework/core/view.h"

namespace bonsai {

struct Parameter;

// Bytes from a pool, or external bytes kept alive by `owner` (a mapped file, a NumPy array).
struct Storage {
  Storage(size_t bytes, Device device);
  Storage(void* data, size_t bytes, Device device, std::shared_ptr<void> owner, bool read_only);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  void* data;
  size_t bytes;
  Device device;
  bool read_only = false;
  uint32_t version = 0;  // number of writes, to detect in-place changes of saved tensors
  std::shared_ptr<void> owner;
};

// Where a tensor was recorded: a tape's id and a slot on it. Id 0 means no tape.
struct Link {
  uint64_t tape = 0;
  int32_t slot = -1;
};

class Tensor {
 public:
  Tensor() = default;  // undefined: no value or no gradient
  Tensor(std::shared_ptr<Storage> storage, size_t offset, Shape shape, DType dtype);

  explicit operator bool() const { return storage_ != nullptr; }
  // An undefined tensor has none of these: each throws.
  const Shape& shape() const { return defined("shape").shape_; }
  int rank() const { return shape().rank; }
  int64_t size(int axis) const { return shape().dim[checked_axis("tensor", axis)]; }
  int64_t elements() const { return shape().elements(); }
  // Maps an axis in [-rank, rank) to [0, rank). Throws in the name of `op` for any other axis.
  int checked_axis(const char* op, int axis) const {
    const int rank = shape().rank, i = axis < 0 ? axis + rank : axis;
    if (i < 0 || i >= rank) [[unlikely]]
      fail_axis(op, axis);
    return i;
  }
  DType dtype() const { return defined("dtype").dtype_; }
  Device device() const { return defined("device").storage_->device; }

  const std::shared_ptr<Storage>& storage() const { return storage_; }  // null if undefined
  size_t offset() const { return offset_; }  // in elements

  // The first element, on the tensor's device.
  const void* data() const;
  void* mutable_data();  // counts as a write; throws if the storage is read-only
  template <class T>
  std::span<const T> span() const;  // throws unless this is a host tensor of element type T
  template <class T>
  std::span<T> mutable_span();

  // The value of a one-element tensor, and all values. Both copy from any device and convert to double.
  double item() const;
  std::vector<double> values() const;

  Tensor detach() const;  // the same elements, on no tape
  // A tensor of another shape over the same storage, `offset` elements further on; on no tape.
  Tensor alias(const Shape& shape, int64_t offset = 0) const;
  Tensor copy() const;                  // new storage, on no tape
  Tensor to(DType dtype) const;         // converted values in new storage, on no tape
  // A copy on that device, or detach() if it is there already. An undefined tensor stays undefined.
  Tensor to(Device device) const;
  bool sole_owner() const;              // no other tensor shares these elements
  std::string describe() const;         // "block.0.query.weight f32(256,256)"

  const Link& link() const { return link_; }
  Parameter* parameter() const { return parameter_; }
  Tensor with_link(Link link) const;
  Tensor with_parameter(Parameter* parameter) const;

 private:
  const Tensor& defined(const char* what) const {
    if (!storage_) [[unlikely]]
      fail_undefined(what);
    return *this;
  }
  [[noreturn]] static void fail_undefined(const char* what);
  [[noreturn]] void fail_axis(const char* op, int axis) const;

  Shape shape_;
  DType dtype_ = DType::f32;
  size_t offset_ = 0;
  std::shared_ptr<Storage> storage_;
  Link link_;
  Parameter* parameter_ = nullptr;
};

// New tensors. `empty` has undefined elements.
Tensor empty(const Shape& shape, DType dtype = DType::f32, Device device = {});
Tensor empty_like(const Tensor& x);
template <class T>
Tensor from(const Shape& shape, std::span<const T> values, Device device = {});
// For values written out in tests and documentation; converts them to `dtype`.
Tensor tensor(const Shape& shape, const std::vector<double>& values, DType dtype = DType::f32,
              Device device = {});

View view(const Tensor& x);   // the view of an undefined tensor is null
MutView mut(Tensor& x);       // counts as a write

}  // namespace bonsai

// Messages print a tensor as describe() and a shape as str().
template <class T>
struct BonsaiFormatter {
  constexpr auto parse(fmt::format_parse_context& context) { return context.begin(); }
  fmt::format_context::iterator format(const T& x, fmt::format_context& context) const;
};
template <>
struct fmt::formatter<bonsai::Tensor> : BonsaiFormatter<bonsai::Tensor> {};
template <>
struct fmt::formatter<bonsai::Shape> : BonsaiFormatter<bonsai::Shape> {};
