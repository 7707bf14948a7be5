// Reductions of the middle axis of (outer, n, inner). Long sums are split into parts of fixed size, whose
// sums are added in order.
#include "bonsai/framework/backend/cuda/columns.h"

namespace bonsai::cuda::BONSAI_LEVEL {
namespace {

constexpr int64_t kPart = 8192;  // elements of a row that one block sums

// y (rows, parts) = factor * sum of each part of each row of n elements
template <int kTeam>
__global__ void sum_rows(const real* x, int64_t rows, int64_t n, int64_t part, int64_t parts, real factor,
                         real* y) {
  const int64_t at = Team<kTeam>::row();
  if (at >= rows * parts) return;
  const int64_t begin = at % parts * part, end = begin + part < n ? begin + part : n;
  x += at / parts * n;
  real sum = 0;
  for (int64_t i = begin + Team<kTeam>::lane(); i < end; i += kTeam) sum += x[i];
  sum = Team<kTeam>::reduce(sum, Sum{});
  if (Team<kTeam>::lane() == 0) y[at] = factor * sum;
}

void sum_parts(const real* x, int64_t rows, int64_t n, int64_t part, int64_t parts, real factor, real* y) {
  launch_teams(rows * parts, part, sum_rows<kWarp>, sum_rows<kBlock>, x, rows, n, part, parts, factor, y);
}

struct KeepNan {  // the larger of two; propagates NaN
  __device__ real operator()(real a, real b) const { return b > a || b != b ? b : a; }
};

// The offset of a line along the middle axis of (outer, n, inner): its element k is at start + k * inner.
__device__ int64_t start_of(int64_t line, int64_t n, int64_t inner) {
  return line / inner * n * inner + line % inner;
}

// The largest element of a line, or NaN if there is one.
template <int kTeam>
__device__ real largest_of(const real* x, int64_t n, int64_t inner) {
  real top = x[0];
  for (int64_t k = Team<kTeam>::lane(); k < n; k += kTeam) top = KeepNan{}(top, x[k * inner]);
  return Team<kTeam>::reduce(top, KeepNan{});
}

template <int kTeam>
__global__ void max_lines(const real* x, int64_t lines, int64_t n, int64_t inner, real* y) {
  const int64_t line = Team<kTeam>::row();
  if (line >= lines) return;
  x += start_of(line, n, inner);
  const real top = largest_of<kTeam>(x, n, inner);
  if (Team<kTeam>::lane() == 0) y[line] = top;
}

// dx = dy / number of ties at the largest elements, 0 elsewhere
template <int kTeam>
__global__ void max_lines_gradient(const real* x, const real* y, const real* dy, int64_t lines, int64_t n,
                                   int64_t inner, real* dx) {
  const int64_t line = Team<kTeam>::row();
  if (line >= lines) return;
  x += start_of(line, n, inner), dx += start_of(line, n, inner);
  const real top = y[line];
  int64_t ties = 0;
  for (int64_t k = Team<kTeam>::lane(); k < n; k += kTeam) ties += x[k * inner] == top;
  ties = Team<kTeam>::reduce(ties, Sum{});
  const real share = dy[line] / static_cast<real>(ties > 1 ? ties : 1);
  for (int64_t k = Team<kTeam>::lane(); k < n; k += kTeam)
    dx[k * inner] = x[k * inner] == top ? share : real(0);
}

struct Lowest {
  __device__ int64_t operator()(int64_t a, int64_t b) const { return b < a ? b : a; }
};

// The lowest index at which x is the largest, or NaN where the largest is.
template <int kTeam>
__global__ void argmax_lines(const real* x, int64_t lines, int64_t n, int64_t inner, int32_t* y) {
  const int64_t line = Team<kTeam>::row();
  if (line >= lines) return;
  x += start_of(line, n, inner);
  const real top = largest_of<kTeam>(x, n, inner);
  int64_t at = n;
  for (int64_t k = Team<kTeam>::lane(); k < n; k += kTeam) {
    const real v = x[k * inner];
    if (v == top || (v != v && top != top)) at = Lowest{}(at, k);
  }
  at = Team<kTeam>::reduce(at, Lowest{});
  if (Team<kTeam>::lane() == 0) y[line] = static_cast<int32_t>(at);
}

// One thread per line, in order.
__global__ void running_sums(const real* x, int64_t lines, int64_t n, int64_t inner, bool reverse, real* y) {
  const int64_t line = element();
  if (line >= lines) return;
  const int64_t start = start_of(line, n, inner);
  real sum = 0;
  for (int64_t k = 0; k < n; ++k) {
    const int64_t at = start + (reverse ? n - 1 - k : k) * inner;
    y[at] = sum += x[at];
  }
}

// Adjacent threads read adjacent elements: if inner = 1 those of one line, otherwise those of adjacent lines.
template <class... P, class... A>
void launch_lines(int64_t lines, int64_t n, int64_t inner, void (*of_thread)(P...), void (*of_warp)(P...),
                  void (*of_block)(P...), A&&... args) {
  if (n == 0) return;
  if (inner == 1) return launch_teams(lines, n, of_warp, of_block, std::forward<A>(args)...);
  launch_elements(lines, of_thread, std::forward<A>(args)...);
}

}  // namespace

void sum(View x, double factor, MutView y) {
  const int64_t outer = x.shape.dim[0], n = x.shape.dim[1], inner = x.shape.dim[2];
  const real f = static_cast<real>(factor);
  if (inner != 1)
    return sum_columns(Element{x.as<real>(), inner, f}, outer, n, inner,
                       {{y.as<real>(), nullptr}, {false, false}});
  const int64_t parts = gpu::ceil_div(n, kPart);
  if (parts <= 1) return sum_parts(x.as<real>(), outer, n, n, 1, f, y.as<real>());
  Scratch partial(outer * parts * static_cast<int64_t>(sizeof(real)));
  sum_parts(x.as<real>(), outer, n, kPart, parts, 1, partial.as<real>());
  sum_parts(partial.as<real>(), outer, parts, parts, 1, f, y.as<real>());
}

void column_sums(View x, GradView y) {
  const int64_t n = x.shape[-1];
  sum_columns(Element{x.as<real>(), n, 1}, 1, x.shape.rows(), n, {{y.as<real>(), nullptr}, {y.add, false}});
}

void max(View x, MutView y) {
  const int64_t n = x.shape.dim[1], inner = x.shape.dim[2], lines = x.shape.dim[0] * inner;
  launch_lines(lines, n, inner, max_lines<1>, max_lines<kWarp>, max_lines<kBlock>, x.as<real>(), lines, n,
               inner, y.as<real>());
}

void max_backward(View x, View y, View dy, MutView dx) {
  const int64_t n = x.shape.dim[1], inner = x.shape.dim[2], lines = x.shape.dim[0] * inner;
  launch_lines(lines, n, inner, max_lines_gradient<1>, max_lines_gradient<kWarp>, max_lines_gradient<kBlock>,
               x.as<real>(), y.as<real>(), dy.as<real>(), lines, n, inner, dx.as<real>());
}

void argmax(View x, MutView y) {
  const int64_t n = x.shape.dim[1], inner = x.shape.dim[2], lines = x.shape.dim[0] * inner;
  launch_lines(lines, n, inner, argmax_lines<1>, argmax_lines<kWarp>, argmax_lines<kBlock>, x.as<real>(),
               lines, n, inner, y.as<int32_t>());
}

void cumulative_sum(View x, bool reverse, MutView y) {
  const int64_t n = x.shape.dim[1], inner = x.shape.dim[2], lines = x.shape.dim[0] * inner;
  launch_elements(lines, running_sums, x.as<real>(), lines, n, inner, reverse, y.as<real>());
}

}  // namespace bonsai::cuda::BONSAI_LEVEL
