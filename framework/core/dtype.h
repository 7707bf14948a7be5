// Element types. Floating tensors are f32 or f64; ids and conditions are i32.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bonsai {

enum class DType : uint8_t { f32, f64, i32 };
inline constexpr int kDTypes = 3;

constexpr size_t size_of(DType t) { return t == DType::f64 ? 8 : 4; }
constexpr bool is_floating(DType t) { return t != DType::i32; }
constexpr const char* name_of(DType t) {
  return t == DType::f32 ? "f32" : t == DType::f64 ? "f64" : "i32";
}

template <class T>
inline constexpr DType dtype_of = DType::f32;
template <>
inline constexpr DType dtype_of<double> = DType::f64;
template <>
inline constexpr DType dtype_of<int32_t> = DType::i32;

}  // namespace bonsai
