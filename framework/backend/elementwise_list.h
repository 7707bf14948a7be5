// The elementwise ops. This header does not include their functors, which are in elementwise.h, so that ops.h
// can declare the ops from it.
#pragma once

// The domain is real, positive, nonzero (a kink at 0) or step (a jump at 0, and a gradient of 0).
//  name       functor   saves  domain
#define BONSAI_ELEMENTWISE(OP)      \
  OP(neg,       Neg,      none, real)     \
  OP(abs,       Abs,      x,    nonzero)  \
  OP(sign,      Sign,     none, step)     \
  OP(exp,       Exp,      y,    real)     \
  OP(log,       Log,      x,    positive) \
  OP(sqrt,      Sqrt,     y,    positive) \
  OP(sin,       Sin,      x,    real)     \
  OP(cos,       Cos,      x,    real)     \
  OP(tanh,      Tanh,     y,    real)     \
  OP(sigmoid,   Sigmoid,  y,    real)     \
  OP(relu,      Relu,     y,    nonzero)  \
  OP(silu,      Silu,     x,    real)     \
  OP(gelu,      Gelu,     x,    real)     \
  OP(gelu_tanh, GeluTanh, x,    real)
