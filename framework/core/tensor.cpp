#include "bonsai/framework/core/tensor.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "bonsai/framework/core/parameter.h"

namespace bonsai {

Storage::Storage(size_t bytes, Device device)
    : data(pool(device).take(bytes)), bytes(bytes), device(device) {}

Storage::Storage(void* data, size_t bytes, Device device, std::shared_ptr<void> owner, bool read_only)
    : data(data), bytes(bytes), device(device), read_only(read_only), owner(std::move(owner)) {}

Storage::~Storage() {
  if (!owner) pool(device).give_back(data, bytes);
}

Tensor::Tensor(std::shared_ptr<Storage> storage, size_t offset, Shape shape, DType dtype)
    : shape_(shape), dtype_(dtype), offset_(offset), storage_(std::move(storage)) {
  const size_t bytes = checked_bytes(shape, size_of(dtype));
  const size_t all = defined("storage").storage_->bytes;
  check(bytes <= all && offset <= (all - bytes) / size_of(dtype), "tensor",
        "{} does not fit into a storage of {} bytes", *this, all);
}

void Tensor::fail_undefined(const char* what) {
  fail("tensor", "an undefined tensor has no {}; give it a value first", what);
}

void Tensor::fail_axis(const char* op, int axis) const {
  const int rank = shape_.rank;
  check(rank > 0, op, "axis {} does not exist in {}, which has no axes", axis, *this);
  fail(op, "axis {} does not exist in {}; choose 0 to {}, or {} to -1 from the end", axis, *this, rank - 1,
       -rank);
}

const void* Tensor::data() const {
  return static_cast<const char*>(defined("data").storage_->data) + offset_ * size_of(dtype_);
}

void* Tensor::mutable_data() {
  check(!defined("data").storage_->read_only, "tensor", "{} is read-only; copy() it first", *this);
  ++storage_->version;
  return static_cast<char*>(storage_->data) + offset_ * size_of(dtype_);
}

template <class T>
std::span<const T> Tensor::span() const {
  check(storage_ && dtype_ == dtype_of<T> && device().type == Device::cpu, "tensor",
        "{} is not a {} tensor on the host", *this, name_of(dtype_of<T>));
  return {static_cast<const T*>(data()), static_cast<size_t>(elements())};
}

template <class T>
std::span<T> Tensor::mutable_span() {
  const size_t n = span<T>().size();
  return {static_cast<T*>(mutable_data()), n};
}

template std::span<const float> Tensor::span() const;
template std::span<const double> Tensor::span() const;
template std::span<const int32_t> Tensor::span() const;
template std::span<float> Tensor::mutable_span();
template std::span<double> Tensor::mutable_span();
template std::span<int32_t> Tensor::mutable_span();

double Tensor::item() const {
  check(storage_ && elements() == 1, "item", "needs a tensor with one element, got {}", *this);
  return values()[0];
}

std::vector<double> Tensor::values() const {
  const size_t n = static_cast<size_t>(defined("values").elements());
  std::vector<double> out(n);
  const auto convert = [&]<class T>(T) {
    std::vector<T> host(n);
    pool(device()).memory().copy(host.data(), data(), n * sizeof(T));
    std::copy(host.begin(), host.end(), out.begin());
  };
  if (dtype_ == DType::f32) convert(float{});
  if (dtype_ == DType::f64) convert(double{});
  if (dtype_ == DType::i32) convert(int32_t{});
  return out;
}

Tensor Tensor::detach() const {
  Tensor t = *this;
  t.link_ = {};
  t.parameter_ = nullptr;
  return t;
}

Tensor Tensor::alias(const Shape& shape, int64_t offset) const {
  check(offset >= -static_cast<int64_t>(defined("elements").offset_), "tensor",
        "{} does not fit at offset {}: only {} elements of its storage precede it", *this, offset, offset_);
  return Tensor(storage_, offset_ + static_cast<size_t>(offset), shape, dtype_);
}

Tensor Tensor::copy() const {
  Tensor t = empty(shape(), dtype_, device());
  pool(device()).memory().copy(t.mutable_data(), data(), elements() * size_of(dtype_));
  return t;
}

Tensor Tensor::to(DType dtype) const {
  const std::vector<double> converted = values();
  return tensor(shape_, converted, dtype, device());
}

Tensor Tensor::to(Device device) const {
  if (!storage_ || device == this->device()) return detach();
  Tensor t = empty(shape_, dtype_, device);
  pool(device.type == Device::cpu ? this->device() : device)
      .memory()
      .copy(t.mutable_data(), data(), elements() * size_of(dtype_));
  return t;
}

bool Tensor::sole_owner() const {
  return defined("elements").storage_.use_count() == 1 && !storage_->owner && offset_ == 0 &&
         elements() * size_of(dtype_) == storage_->bytes;
}

std::string Tensor::describe() const {
  const std::string type = storage_ ? name_of(dtype_) + shape_.str() : "undefined tensor";
  return parameter_ ? parameter_->path + " " + type : type;
}

Tensor Tensor::with_link(Link link) const {
  Tensor t = *this;
  t.link_ = link;
  t.parameter_ = nullptr;
  return t;
}

Tensor Tensor::with_parameter(Parameter* parameter) const {
  Tensor t = detach();
  t.parameter_ = parameter;
  return t;
}

Tensor empty(const Shape& shape, DType dtype, Device device) {
  const size_t bytes = checked_bytes(shape, size_of(dtype));
  return Tensor(std::allocate_shared<Storage>(PoolAllocator<Storage>(), bytes, device), 0, shape, dtype);
}

Tensor empty_like(const Tensor& x) { return empty(x.shape(), x.dtype(), x.device()); }

template <class T>
Tensor from(const Shape& shape, std::span<const T> values, Device device) {
  Tensor t = empty(shape, dtype_of<T>, device);
  check(static_cast<int64_t>(values.size()) == t.elements(), "tensor", "{} needs {} values, got {}",
        t, t.elements(), values.size());
  pool(device).memory().copy(t.mutable_data(), values.data(), values.size_bytes());
  return t;
}

template Tensor from(const Shape&, std::span<const float>, Device);
template Tensor from(const Shape&, std::span<const double>, Device);
template Tensor from(const Shape&, std::span<const int32_t>, Device);

Tensor tensor(const Shape& shape, const std::vector<double>& values, DType dtype, Device device) {
  const auto convert = [&]<class T>(T) {
    std::vector<T> typed(values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      if constexpr (std::is_integral_v<T>)
        check(values[i] >= std::numeric_limits<T>::min() &&
                  values[i] <= std::numeric_limits<T>::max() && values[i] == T(values[i]),
              "tensor", "{} is not an i32 number", values[i]);
      typed[i] = static_cast<T>(values[i]);
    }
    return from<T>(shape, typed, device);
  };
  if (dtype == DType::f32) return convert(float{});
  if (dtype == DType::f64) return convert(double{});
  return convert(int32_t{});
}

View view(const Tensor& x) {
  if (!x) return {};
  return {x.data(), x.shape(), x.dtype()};
}

MutView mut(Tensor& x) { return {x.mutable_data(), x.shape(), x.dtype()}; }

}  // namespace bonsai

template <>
fmt::format_context::iterator BonsaiFormatter<bonsai::Tensor>::format(
    const bonsai::Tensor& x, fmt::format_context& context) const {
  return fmt::format_to(context.out(), "{}", x.describe());
}
template <>
fmt::format_context::iterator BonsaiFormatter<bonsai::Shape>::format(
    const bonsai::Shape& x, fmt::format_context& context) const {
  return fmt::format_to(context.out(), "{}", x.str());
}
