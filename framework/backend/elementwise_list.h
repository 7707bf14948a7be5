// The elementwise ops. This header does not include their functors, which are in elementwise.h, so that ops.h
// can declare the ops from it.
#pragma once

//  name       functor   saves  domain: real, positive, or nonzero (a kink at 0)
#define BONSAI_ELEMENTWISE(OP)      \
  OP(neg,       Neg,      none, real)     \
  OP(exp,       Exp,      y,    real)     \
  OP(log,       Log,      x,    positive) \
  OP(sqrt,      Sqrt,     y,    positive) \
  OP(tanh,      Tanh,     y,    real)     \
  OP(sigmoid,   Sigmoid,  y,    real)     \
  OP(relu,      Relu,     y,    nonzero)  \
  OP(silu,      Silu,     x,    real)     \
  OP(gelu,      Gelu,     x,    real)     \
  OP(gelu_tanh, GeluTanh, x,    real)
