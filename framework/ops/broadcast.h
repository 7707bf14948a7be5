// Helpers that several ops share. Layers do not use them.
#pragma once

#include "bonsai/framework/autograd/dispatch.h"

namespace bonsai {

// Sums dy over the axes along which an operand of this shape was broadcast.
Tensor sum_to(const Tensor& dy, const Shape& shape);

// Throws unless a and b are floating and have the same dtype and device.
void check_alike(const char* op, const Tensor& a, const Tensor& b);
void check_floating(const char* op, const Tensor& x);

// A tensor for an elementwise result: dy itself if no other tensor uses its memory, else a new one.
inline Tensor reuse(const Tensor& dy) { return dy.sole_owner() ? dy : empty_like(dy); }

}  // namespace bonsai
