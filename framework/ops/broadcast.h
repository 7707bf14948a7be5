// Helpers that several ops share; not for layers.
#pragma once

#include "bonsai/framework/autograd/dispatch.h"

namespace bonsai {

// Sums a gradient over the axes along which an operand of that shape was stretched.
Tensor sum_to(const Tensor& dy, const Shape& shape);

// Both floating and alike, or an error.
void check_alike(const char* op, const Tensor& a, const Tensor& b);
void check_floating(const char* op, const Tensor& x);

// A tensor that kernels may write an elementwise result into: dy itself when nobody else sees it.
inline Tensor reuse(const Tensor& dy) { return dy.sole_owner() ? dy : empty_like(dy); }

}  // namespace bonsai
