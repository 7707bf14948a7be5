// Checks the number of axes of an operand, and makes the views of kernels that work along one axis.
#pragma once

#include <string_view>

#include "bonsai/framework/core/tensor.h"

namespace bonsai {

// Throws if x does not have the axes that the layout names: "(batch,time,channels)", or "(...,rows,columns)"
// for at least two:
//   [op] q must be (batch,time,channels), got f32(5,16); add a batch axis: (1,5,16)
void check_axes(std::string_view op, const char* operand, const Tensor& x, std::string_view layout);

// x reshaped to (outer, n, inner), where n is the size of the axis.
Shape around(const Shape& x, int axis);
View around(const Tensor& x, int axis);

}  // namespace bonsai
