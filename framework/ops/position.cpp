// Rotary position embedding and ALiBi slopes.
#include <algorithm>
#include <bit>
#include <cmath>
#include <deque>
#include <mutex>

#include "bonsai/framework/autograd/record.h"
#include "bonsai/framework/ops/axes.h"
#include "bonsai/framework/ops/broadcast.h"
#include "bonsai/framework/ops/ops.h"

namespace bonsai {
namespace {

// (positions, width / 2, 2): cosine and sine of each angle, for positions from `first`, computed in double.
Tensor angles(int64_t first, int64_t positions, int64_t width, double theta, DType dtype, Device device) {
  std::vector<double> values;
  values.reserve(static_cast<size_t>(positions * width));
  for (int64_t t = first; t < first + positions; ++t)
    for (int64_t j = 0; j < width / 2; ++j) {
      const double angle = static_cast<double>(t) *
                           std::pow(theta, -2.0 * static_cast<double>(j) / static_cast<double>(width));
      values.push_back(std::cos(angle)), values.push_back(std::sin(angle));
    }
  return tensor({positions, width / 2, 2}, values, dtype, device);
}

// A cached table of angles from position 0. Queries, keys and all layers share it, and it is copied to a
// device once, not at every step.
struct Angles {
  int64_t width;
  double theta;
  DType dtype;
  Device device;
  Tensor values = {};
  bool same(const Angles& o) const {
    return width == o.width && theta == o.theta && dtype == o.dtype && device == o.device;
  }
};

Tensor rope_table(int64_t first, int64_t time, Angles wanted) {
  constexpr int64_t kPositions = 1 << 16;
  constexpr size_t kTables = 4;
  const auto make = [&](int64_t from, int64_t positions) {
    return angles(from, positions, wanted.width, wanted.theta, wanted.dtype, wanted.device);
  };
  if (first < 0 || first + time > kPositions) return make(first, time);
  static std::mutex mutex;
  static auto& kept = *new std::deque<Angles>;  // never freed: the device may close first
  std::lock_guard lock(mutex);
  auto found = std::ranges::find_if(kept, [&](const Angles& a) { return a.same(wanted); });
  if (found == kept.end()) {
    if (kept.size() == kTables) kept.pop_front();
    kept.push_back(wanted);
    found = kept.end() - 1;
  }
  if (!found->values || found->values.size(0) < first + time)
    found->values = make(0, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(first + time))));
  return found->values.alias({time, wanted.width / 2, 2}, first * wanted.width);
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

// The backward function rotates by the negative angles and saves only the table.
Tensor rope(const Tensor& x, const RopeOptions& o) {
  check_floating("rope", x);
  check_axes("rope", "x", x, "(...,time,channels)");
  check(o.n_heads > 0 && x.size(-1) % (2 * o.n_heads) == 0, "rope",
        "needs channels of {} heads of an even width, got {}", o.n_heads, x);
  check(o.theta > 0, "rope", "theta is {}; it must be above 0", o.theta);
  const Tensor table =
      rope_table(o.first, x.size(-2), {x.size(-1) / o.n_heads, o.theta, x.dtype(), x.device()});
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
