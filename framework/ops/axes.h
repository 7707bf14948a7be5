// The error of an operand that has too few or too many axes, and the views of kernels that work along one.
#pragma once

#include <string_view>

#include "bonsai/framework/core/tensor.h"

namespace bonsai {

// A layout names the axes: "(batch,time,channels)", or "(...,rows,columns)" for at least two. Otherwise
//   [op] q must be (batch,time,channels), got f32(5,16); add a batch axis: (1,5,16)
void check_axes(std::string_view op, const char* operand, const Tensor& x, std::string_view layout);

// x as (outer, n, inner) around an axis.
Shape around(const Shape& x, int axis);
View around(const Tensor& x, int axis);

}  // namespace bonsai
