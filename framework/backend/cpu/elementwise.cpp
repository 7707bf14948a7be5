// Elementwise kernels, with and without broadcasting.
#include "bonsai/framework/backend/cpu/loops.h"
#include "bonsai/framework/backend/elementwise.h"
#include "bonsai/framework/backend/layout.h"

namespace bonsai::cpu::BONSAI_LEVEL {
namespace {

template <class F>
void unary(View x, MutView y, F f) {
  const real* in = x.as<real>();
  real* out = y.as<real>();
  for_ranges(y.shape.elements(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) out[i] = f(in[i]);
  });
}

// dx[i] = f(saved[i], dy[i])
template <class F>
void unary_backward(View saved, View dy, MutView dx, F f) {
  const real* s = saved.as<real>();
  const real* d = dy.as<real>();
  real* out = dx.as<real>();
  for_ranges(dx.shape.elements(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t from = begin; from < end; from += kAhead) {
      const int64_t to = smaller(end, from + kAhead);
      fetch_ahead(s + from, to - from);
      for (int64_t i = from; i < to; ++i) out[i] = f(s[i], d[i]);
    }
  });
}

// Calls f(n, output offset, operand offsets, operand strides) for runs of n elements along the innermost
// axis.
template <class F>
void for_runs(const Shape& out, const Shape* const (&in)[3], F f) {
  if (out.elements() == 0) return;
  const Layout l = layout_of(out, in);
  const int last = l.rank - 1;
  const int64_t n = l.dim[last];
  const int64_t step[3] = {l.step[0][last], l.step[1][last], l.step[2][last]};
  if (l.rank == 1) {
    for_ranges(n, kGrain, [&](int64_t begin, int64_t end) {
      const int64_t at[3] = {begin * step[0], begin * step[1], begin * step[2]};
      f(end - begin, begin, at, step);
    });
    return;
  }
  for_rows(out.elements() / n, n, [&](int64_t row) {
    int64_t at[3] = {0, 0, 0};
    int64_t rest = row;
    for (int axis = last - 1; axis >= 0; --axis) {
      const int64_t i = rest % l.dim[axis];
      rest /= l.dim[axis];
      for (int k = 0; k < 3; ++k) at[k] += i * l.step[k][axis];
    }
    f(n, row * n, at, step);
  });
}

template <class F>
void binary(View a, View b, MutView y, F f) {
  const Shape* const in[3] = {&a.shape, &b.shape, &b.shape};
  for_runs(y.shape, in, [&](int64_t n, int64_t o, const int64_t* at, const int64_t* step) {
    const real* p = a.as<real>() + at[0];
    const real* q = b.as<real>() + at[1];
    real* out = y.as<real>() + o;
    if (step[0] && step[1]) {
      for (int64_t i = 0; i < n; ++i) out[i] = f(p[i], q[i]);
    } else if (step[0]) {
      for (int64_t i = 0; i < n; ++i) out[i] = f(p[i], q[0]);
    } else {
      for (int64_t i = 0; i < n; ++i) out[i] = f(p[0], q[i * step[1]]);
    }
  });
}

// y = 1 where holds(a, b), else 0
template <class F>
void compare_with(View a, View b, MutView y, F holds) {
  const Shape* const in[3] = {&a.shape, &b.shape, &b.shape};
  for_runs(y.shape, in, [&](int64_t n, int64_t o, const int64_t* at, const int64_t* step) {
    const real* p = a.as<real>() + at[0];
    const real* q = b.as<real>() + at[1];
    int32_t* out = y.as<int32_t>() + o;
    for (int64_t i = 0; i < n; ++i) out[i] = holds(p[i * step[0]], q[i * step[1]]);
  });
}

}  // namespace

#define OP(name, functor, saves, domain)                                                      \
  void name(View x, MutView y) {                                                              \
    unary(x, y, [](real v) { return functor::forward(v); });                                  \
  }                                                                                           \
  void name##_backward(View saved, View dy, MutView dx) {                                     \
    unary_backward(saved, dy, dx, [](real s, real d) { return functor::backward(s, s, d); }); \
  }
BONSAI_ELEMENTWISE(OP)
#undef OP

void fill(MutView y, double value) {
  real* out = y.as<real>();
  for_ranges(y.shape.elements(), kGrain, [&](int64_t begin, int64_t end) {
    fill(out + begin, end - begin, static_cast<real>(value));
  });
}

void accumulate(View x, MutView y) {
  unary_backward(x, View{y.data, y.shape, y.dtype}, y, [](real a, real b) { return b + a; });
}

void scale(View x, double factor, MutView y) {
  unary(x, y, [f = static_cast<real>(factor)](real v) { return f * v; });
}

void add(View a, View b, MutView y) {
  binary(a, b, y, [](real p, real q) { return p + q; });
}
void sub(View a, View b, MutView y) {
  binary(a, b, y, [](real p, real q) { return p - q; });
}
void mul(View a, View b, MutView y) {
  binary(a, b, y, [](real p, real q) { return p * q; });
}
void div(View a, View b, MutView y) {
  binary(a, b, y, [](real p, real q) { return p / q; });
}

void maximum(View a, View b, MutView y) {
  binary(a, b, y, [](real p, real q) { return q > p || q != q ? q : p; });
}
void minimum(View a, View b, MutView y) {
  binary(a, b, y, [](real p, real q) { return q < p || q != q ? q : p; });
}

void compare(View a, View b, kernel::Comparison holds, MutView y) {
  using kernel::Comparison;
  if (holds == Comparison::greater)
    compare_with(a, b, y, [](real p, real q) { return p > q; });
  else if (holds == Comparison::greater_equal)
    compare_with(a, b, y, [](real p, real q) { return p >= q; });
  else
    compare_with(a, b, y, [](real p, real q) { return p == q; });
}

void expand(View x, double factor, MutView y) {
  binary(x, x, y, [f = static_cast<real>(factor)](real v, real) { return f * v; });
}

void where(View condition, View a, View b, MutView y) {
  const Shape* const in[3] = {&condition.shape, &a.shape, &b.shape};
  for_runs(y.shape, in, [&](int64_t n, int64_t o, const int64_t* at, const int64_t* step) {
    const int32_t* c = condition.as<int32_t>() + at[0];
    const real* p = a.as<real>() + at[1];
    const real* q = b.as<real>() + at[2];
    real* out = y.as<real>() + o;
    for (int64_t i = 0; i < n; ++i) out[i] = c[i * step[0]] ? p[i * step[1]] : q[i * step[2]];
  });
}

void pow(View x, double exponent, MutView y) {
  unary(x, y, [a = static_cast<real>(exponent)](real v) { return math::pow(v, a); });
}

void pow_backward(View x, View dy, double exponent, MutView dx) {
  const real a = static_cast<real>(exponent);
  unary_backward(x, dy, dx, [a](real v, real d) { return a == 0 ? real(0) : d * a * math::pow(v, a - 1); });
}

void dropout(View x, double p, RandomKey key, MutView y) {
  const uint64_t threshold = dropout_threshold(p);
  const real keep = p < 1 ? static_cast<real>(1 / (1 - p)) : real(0);
  const real* in = x.as<real>();
  real* out = y.as<real>();
  static_assert(kGrain % 4 == 0, "a tile must start at a block of four random words");
  for_ranges(y.shape.elements(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += 4) {
      const Philox random = philox(key, static_cast<uint64_t>(i) / 4);
      for (int64_t j = i; j < smaller(end, i + 4); ++j)
        out[j] = random.word[j - i] >= threshold ? in[j] * keep : real(0);
    }
  });
}

}  // namespace bonsai::cpu::BONSAI_LEVEL
