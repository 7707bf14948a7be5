// Tensor: a handle on shared storage. Contiguous, row-major; copying a Tensor aliases its elements.
//
// A tensor also remembers where it stands on a tape (see autograd/tape.h) or which parameter it is
// the value of. It never owns the graph.
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

// Bytes from a pool, or anyone's bytes kept alive by `owner` (a mapped file, a NumPy array).
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
  uint32_t version = 0;  // counts writes, so that a change of a saved tensor is noticed
  std::shared_ptr<void> owner;
};

// Where a tensor was recorded: a tape's number and a slot there. Tape 0 is no tape.
struct Link {
  uint64_t tape = 0;
  int32_t slot = -1;
};

class Tensor {
 public:
  Tensor() = default;  // undefined: no value, or no gradient
  Tensor(std::shared_ptr<Storage> storage, size_t offset, Shape shape, DType dtype);

  explicit operator bool() const { return storage_ != nullptr; }
  const Shape& shape() const { return shape_; }
  int rank() const { return shape_.rank; }
  int64_t size(int axis) const { return shape_[axis]; }
  int64_t elements() const { return shape_.elements(); }
  DType dtype() const { return dtype_; }
  Device device() const { return storage_->device; }
  const std::shared_ptr<Storage>& storage() const { return storage_; }
  size_t offset() const { return offset_; }  // in elements

  const void* data() const;
  void* mutable_data();  // counts as a write; refused for read-only storage
  template <class T>
  std::span<const T> span() const;  // host tensors of exactly this type
  template <class T>
  std::span<T> mutable_span();

  // The value of a tensor with one element, and all values, converted to double; from any device.
  double item() const;
  std::vector<double> values() const;

  Tensor detach() const;  // the same elements, on no tape
  // Other sizes over the same elements, from `offset` elements further on; on no tape.
  Tensor alias(const Shape& shape, int64_t offset = 0) const;
  Tensor copy() const;                  // new storage, on no tape
  Tensor to(DType dtype) const;         // converted values in new storage, on no tape
  Tensor to(Device device) const;       // the same elements there, on no tape; an undefined tensor stays so
  bool sole_owner() const;              // nobody else can see these elements
  std::string describe() const;         // "block.0.query.weight f32(256,256)"

  const Link& link() const { return link_; }
  Parameter* parameter() const { return parameter_; }
  Tensor with_link(Link link) const;
  Tensor with_parameter(Parameter* parameter) const;

 private:
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
// Values written out in a test or a read-me, converted to the dtype.
Tensor tensor(const Shape& shape, const std::vector<double>& values, DType dtype = DType::f32, Device device = {});

View view(const Tensor& x);   // an undefined tensor gives a view of null
MutView mut(Tensor& x);       // counts as a write

}  // namespace bonsai

// In messages a tensor reads as describe(), a shape as str().
template <class T>
struct BonsaiFormatter {
  constexpr auto parse(fmt::format_parse_context& context) { return context.begin(); }
  fmt::format_context::iterator format(const T& x, fmt::format_context& context) const;
};
template <>
struct fmt::formatter<bonsai::Tensor> : BonsaiFormatter<bonsai::Tensor> {};
template <>
struct fmt::formatter<bonsai::Shape> : BonsaiFormatter<bonsai::Shape> {};
