// Short forms for the inputs of op table rows.
#pragma once

#include "bonsai/framework/checks/op_cases.h"
#include "bonsai/framework/core/rng.h"

namespace bonsai {

using In = const std::vector<Tensor>&;
using Ref = const ReferenceCase&;

template <class... N>
Input normal(N... sizes) {
  return {Input::normal, Shape{static_cast<int64_t>(sizes)...}};
}
template <class... N>
Input real(N... sizes) {
  return normal(sizes...);
}
template <class... N>
Input positive(N... sizes) {
  return {Input::positive, Shape{static_cast<int64_t>(sizes)...}};
}
template <class... N>
Input nonzero(N... sizes) {
  return {Input::nonzero, Shape{static_cast<int64_t>(sizes)...}};
}
template <class... N>
Input distinct(N... sizes) {
  return {Input::distinct, Shape{static_cast<int64_t>(sizes)...}};
}
template <class... N>
Input flags(N... sizes) {
  return {Input::flags, Shape{static_cast<int64_t>(sizes)...}};
}
template <class... N>
Input ids(int64_t limit, N... sizes) {
  return {Input::ids, Shape{static_cast<int64_t>(sizes)...}, 1, limit};
}

inline constexpr RandomKey kKey{0x0123456789abcdef, 7};

void add_attention(std::vector<OpCase>& rows);  // op_cases_attention.cpp

}  // namespace bonsai
