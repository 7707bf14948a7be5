#include "bonsai/framework/checks/nonfinite.h"

#include <algorithm>
#include <cmath>

namespace bonsai {
namespace {

struct Seen {
  bool nan = false, infinite = false;
  double least = INFINITY, most = -INFINITY;  // of the finite values

  explicit Seen(const Tensor& x) {
    if (!x || !is_floating(x.dtype())) return;
    for (const double v : x.detach().values()) {
      nan |= std::isnan(v), infinite |= std::isinf(v);
      if (std::isfinite(v)) least = std::min(least, v), most = std::max(most, v);
    }
  }
  bool finite() const { return !nan && !infinite; }
  std::string text(const Tensor& x) const {
    std::string out = x.describe();
    if (least <= most) out += fmt::format(" from {:.4g} to {:.4g}", least, most);
    return out + (nan ? " with nan" : infinite ? " with inf" : "");
  }
};

std::string place(const char* op) {
  const std::string* path = PathScope::current();
  return path && !path->empty() ? fmt::format("[{}] in {}", op, *path) : fmt::format("[{}]", op);
}

}  // namespace

void NonfiniteTrace::result(const char* op, std::span<const TensorRef> inputs, const Tensor& y) {
  if (found() || !y || !is_floating(y.dtype())) return;
  const Seen made(y);
  if (made.finite()) return;
  bool nan = false, finite = true;
  std::string from;
  for (const Tensor& x : inputs) {
    if (!x || !is_floating(x.dtype())) continue;
    const Seen given(x);
    nan |= given.nan, finite &= given.finite();
    from += (from.empty() ? "" : ", ") + given.text(x);
    if (x.parameter() && !given.finite()) {
      text_ = fmt::format("{} read {}", place(op), given.text(x));
      return;
    }
  }
  if ((made.nan && !nan) || (made.infinite && finite))
    text_ = fmt::format("{}{} made {} of {}",
                        backward_of_ ? fmt::format("in the backward of [{}] ", backward_of_) : "", place(op),
                        made.nan ? "nan" : "inf", from);
}

void NonfiniteTrace::upstream(const char* op, size_t, const Tensor& dy, const std::vector<Tensor>& saved) {
  if (found()) return;
  backward_of_ = op;
  const Seen seen(dy);
  nan_above_ = seen.nan, finite_above_ = seen.finite();
  above_ = "of the gradient " + seen.text(dy);
  std::string kept;
  for (const Tensor& x : saved)
    if (x && is_floating(x.dtype())) kept += (kept.empty() ? " and of " : ", ") + Seen(x).text(x);
  above_ += kept;
}

void NonfiniteTrace::gradient(const char* op, size_t, size_t input, Tensor& gradient) {
  if (found()) return;
  const Seen made(gradient);
  if ((made.nan && !nan_above_) || (made.infinite && finite_above_))
    text_ = fmt::format("the backward of {} made {} in the gradient of its input {}, {}, {}",
                        place(op), made.nan ? "nan" : "inf", input, gradient.describe(), above_);
}

}  // namespace bonsai
