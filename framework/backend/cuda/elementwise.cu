// Elementwise kernels with and without broadcasting, one thread per element.
#include "bonsai/framework/backend/cuda/loops.h"
#include "bonsai/framework/backend/elementwise.h"
#include "bonsai/framework/backend/layout.h"

namespace bonsai::cuda::BONSAI_LEVEL {
namespace {

// The offset of operand k's element for element i of the output.
__device__ int64_t place(const Layout& l, int k, int64_t i) {
  int64_t at = 0;
  for (int axis = l.rank - 1; axis >= 0; --axis) {
    at += i % l.dim[axis] * l.step[k][axis];
    i /= l.dim[axis];
  }
  return at;
}

template <class F>
__global__ void unary(const real* x, real* y, int64_t n, F f) {
  const int64_t i = element();
  if (i < n) y[i] = f(x[i]);
}

// out[i] = f(a[i], b[i])
template <class F>
__global__ void pairs(const real* a, const real* b, real* out, int64_t n, F f) {
  const int64_t i = element();
  if (i < n) out[i] = f(a[i], b[i]);
}

template <class F>
__global__ void broadcast_pairs(const real* a, const real* b, real* out, int64_t n, Layout l, F f) {
  const int64_t i = element();
  if (i < n) out[i] = f(a[place(l, 0, i)], b[place(l, 1, i)]);
}

__global__ void choose(const int32_t* condition, const real* a, const real* b, real* out, int64_t n,
                       Layout l) {
  const int64_t i = element();
  if (i < n) out[i] = condition[place(l, 0, i)] ? a[place(l, 1, i)] : b[place(l, 2, i)];
}

__global__ void fill_with(real* y, int64_t n, real value) {
  const int64_t i = element();
  if (i < n) y[i] = value;
}

// Each thread handles four elements, which use one block of random words.
__global__ void drop(const real* x, real* y, int64_t n, RandomKey key, uint64_t threshold, real keep) {
  const int64_t block = element();
  if (4 * block >= n) return;
  const Philox random = philox(key, static_cast<uint64_t>(block));
  for (int64_t i = 4 * block; i < n && i < 4 * block + 4; ++i)
    y[i] = random.word[i % 4] >= threshold ? x[i] * keep : real(0);
}

template <class Op>
struct Forward {
  __device__ real operator()(real x) const { return Op::forward(x); }
};
template <class Op>
struct Backward {
  __device__ real operator()(real saved, real dy) const { return Op::backward(saved, saved, dy); }
};
struct Add {
  __device__ real operator()(real a, real b) const { return a + b; }
};
struct Sub {
  __device__ real operator()(real a, real b) const { return a - b; }
};
struct Mul {
  __device__ real operator()(real a, real b) const { return a * b; }
};
struct Div {
  __device__ real operator()(real a, real b) const { return a / b; }
};
struct Maximum {
  __device__ real operator()(real a, real b) const { return b > a || b != b ? b : a; }
};
struct Minimum {
  __device__ real operator()(real a, real b) const { return b < a || b != b ? b : a; }
};
struct Compare {
  kernel::Comparison holds;
  __device__ int32_t operator()(real a, real b) const {
    if (holds == kernel::Comparison::greater) return a > b;
    return holds == kernel::Comparison::equal ? a == b : a >= b;
  }
};

__global__ void compare_pairs(const real* a, const real* b, int32_t* out, int64_t n, Layout l,
                              Compare compare) {
  const int64_t i = element();
  if (i < n) out[i] = compare(a[place(l, 0, i)], b[place(l, 1, i)]);
}

struct Scale {
  real factor;
  __device__ real operator()(real x) const { return factor * x; }
};
struct ScaleFirst {
  real factor;
  __device__ real operator()(real x, real) const { return factor * x; }
};
struct Pow {
  real exponent;
  __device__ real operator()(real x) const { return math::pow(x, exponent); }
};
struct PowBackward {
  real exponent;
  __device__ real operator()(real x, real dy) const {
    return exponent == 0 ? real(0) : dy * exponent * math::pow(x, exponent - 1);
  }
};

template <class F>
void each(View x, MutView y, F f) {
  launch_elements(y.shape.elements(), unary<F>, x.as<real>(), y.as<real>(), y.shape.elements(), f);
}
template <class F>
void each(View a, View b, MutView y, F f) {
  launch_elements(y.shape.elements(), pairs<F>, a.as<real>(), b.as<real>(), y.as<real>(), y.shape.elements(),
                  f);
}
template <class F>
void broadcast(View a, View b, MutView y, F f) {
  const int64_t n = y.shape.elements();
  const Layout l = layout_of(y.shape, {&a.shape, &b.shape, &b.shape});
  if (l.rank == 1 && l.step[0][0] == 1 && l.step[1][0] == 1) return each(a, b, y, f);
  launch_elements(n, broadcast_pairs<F>, a.as<real>(), b.as<real>(), y.as<real>(), n, l, f);
}

}  // namespace

#define OP(name, functor, saves, domain)                                                                     \
  void name(View x, MutView y) { each(x, y, Forward<functor>{}); }                                           \
  void name##_backward(View saved, View dy, MutView dx) { each(saved, dy, dx, Backward<functor>{}); }
BONSAI_ELEMENTWISE(OP)
#undef OP

void fill(MutView y, double value) {
  const int64_t n = y.shape.elements();
  launch_elements(n, fill_with, y.as<real>(), n, static_cast<real>(value));
}

void accumulate(View x, MutView y) { each(View{y.data, y.shape, y.dtype}, x, y, Add{}); }
void scale(View x, double factor, MutView y) { each(x, y, Scale{static_cast<real>(factor)}); }

void add(View a, View b, MutView y) { broadcast(a, b, y, Add{}); }
void sub(View a, View b, MutView y) { broadcast(a, b, y, Sub{}); }
void mul(View a, View b, MutView y) { broadcast(a, b, y, Mul{}); }
void div(View a, View b, MutView y) { broadcast(a, b, y, Div{}); }
void maximum(View a, View b, MutView y) { broadcast(a, b, y, Maximum{}); }
void minimum(View a, View b, MutView y) { broadcast(a, b, y, Minimum{}); }

void compare(View a, View b, kernel::Comparison holds, MutView y) {
  const int64_t n = y.shape.elements();
  const Layout l = layout_of(y.shape, {&a.shape, &b.shape, &b.shape});
  launch_elements(n, compare_pairs, a.as<real>(), b.as<real>(), y.as<int32_t>(), n, l, Compare{holds});
}

void expand(View x, double factor, MutView y) { broadcast(x, x, y, ScaleFirst{static_cast<real>(factor)}); }

void where(View condition, View a, View b, MutView y) {
  const int64_t n = y.shape.elements();
  const Layout l = layout_of(y.shape, {&condition.shape, &a.shape, &b.shape});
  launch_elements(n, choose, condition.as<int32_t>(), a.as<real>(), b.as<real>(), y.as<real>(), n, l);
}

void pow(View x, double exponent, MutView y) { each(x, y, Pow{static_cast<real>(exponent)}); }
void pow_backward(View x, View dy, double exponent, MutView dx) {
  each(x, dy, dx, PowBackward{static_cast<real>(exponent)});
}

void dropout(View x, double p, RandomKey key, MutView y) {
  const int64_t n = y.shape.elements();
  launch_elements((n + 3) / 4, drop, x.as<real>(), y.as<real>(), n, key, dropout_threshold(p),
                  p < 1 ? static_cast<real>(1 / (1 - p)) : real(0));
}

}  // namespace bonsai::cuda::BONSAI_LEVEL
