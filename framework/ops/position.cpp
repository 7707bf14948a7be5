// Rotary positions and the slopes of ALiBi: where a token stands, told to attention.
#include <cmath>

#include "framework/autograd/record.h"
#include "framework/ops/broadcast.h"
#include "framework/ops/ops.h"

namespace bonsai {
namespace {

// (time, width / 2, 2): cos and sin of each angle, taken in double.
Tensor rope_table(int64_t time, int64_t width, const RopeOptions& o, DType dtype, Device device) {
  std::vector<double> values;
  values.reserve(static_cast<size_t>(time * width));
  for (int64_t t = 0; t < time; ++t)
    for (int64_t j = 0; j < width / 2; ++j) {
      const double angle = static_cast<double>(o.first + t) *
                           std::pow(o.theta, -2.0 * static_cast<double>(j) / static_cast<double>(width));
      values.push_back(std::cos(angle)), values.push_back(std::sin(angle));
    }
  return tensor({time, width / 2, 2}, values, dtype, device);
}

Tensor turned(const Tensor& x, const Tensor& table, int64_t n_heads, bool interleaved, bool back) {
  Tensor y = empty_like(x);
  const int64_t time = x.size(-2), width = x.size(-1);
  View in = view(x);
  in.shape = {width == 0 || time == 0 ? 0 : x.elements() / (time * width), time, n_heads, width / n_heads};
  kernels(x).rope(in, view(table), interleaved, back, mut(y));
  return y;
}

}  // namespace

// Turning back is the gradient; only the table is saved.
Tensor rope(const Tensor& x, const RopeOptions& o) {
  check_floating("rope", x);
  check(x.rank() >= 2 && o.n_heads > 0 && x.size(-1) % (2 * o.n_heads) == 0, "rope",
        "needs (...,time,heads * width) with an even width, got {} for {} heads", x, o.n_heads);
  check(o.theta > 0, "rope", "theta is {}; it must be above 0", o.theta);
  const Tensor table = rope_table(x.size(-2), x.size(-1) / o.n_heads, o, x.dtype(), x.device());
  struct Args {
    int64_t n_heads;
    bool interleaved;
  };
  return record("rope", {x}, turned(x, table, o.n_heads, o.interleaved, false), {table},
                Args{o.n_heads, o.interleaved}, [](Tensor dy, Saved& s, Sink&, Args a) -> Grads {
                  return {turned(dy, s[0], a.n_heads, a.interleaved, true)};
                });
}

Tensor alibi_slopes(int64_t first_head, int64_t count, int64_t n_heads, DType dtype, Device device) {
  std::vector<double> slopes;
  for (int64_t h = first_head; h < first_head + count; ++h)
    slopes.push_back(std::exp2(-8.0 * static_cast<double>(h + 1) / static_cast<double>(n_heads)));
  return tensor({count}, slopes, dtype, device);
}

}  // namespace bonsai
