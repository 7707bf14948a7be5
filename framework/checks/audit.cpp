#include "framework/checks/audit.h"

#include <algorithm>
#include <cmath>

#include "framework/autograd/dispatch.h"
#include "framework/autograd/tape.h"
#include "framework/core/rng.h"

namespace bonsai {
namespace {

Tensor normal(const Shape& shape, DType dtype, RandomKey key) {
  std::vector<double> values(static_cast<size_t>(shape.elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = random_normal(key, i);
  return tensor(shape, values, dtype);
}

// `count` of `all`, evenly spread, the first and the last among them.
std::vector<int64_t> spread(int64_t count, int64_t all) {
  std::vector<int64_t> chosen;
  if (count <= 0 || count > all) count = all;
  for (int64_t i = 0; i < count; ++i) chosen.push_back(count == 1 ? all - 1 : i * (all - 1) / (count - 1));
  return chosen;
}

class Audit {
 public:
  Audit(const AuditedFunction& f, int64_t time, int64_t width, DType dtype, const AuditOptions& options,
        AuditReport& report)
      : f_(f), time_(time), width_(width), dtype_(dtype), options_(options), report_(report) {}

  void run() {
    batch_rows();
    each_position();
    // With another scale of the scores the outputs are others, or it has not reached them.
    const Tensor x = normal({1, time_, width_}, dtype_, random_key(options_.seed, "audit input"));
    const std::vector<double> usual = f_(x, {}).values();
    for (const double scale : {1e5, 1e12}) {
      if (time_ > 1 && options_.sees_previous && f_(x, {.attention_scale = scale}).values() == usual)
        missing(fmt::format("the attention scale x {:.0e} changes no output", scale));
      loud(scale);
    }
    padded();
  }

 private:
  using Wanted = std::function<bool(int64_t row, int64_t position)>;

  // [row][position]: whether what is wanted of a batch depends on it, that is, its gradient is not exactly 0.
  std::vector<std::vector<bool>> depends(int64_t rows, const AuditConditions& conditions,
                                         const Wanted& wanted) {
    Tape tape;
    const Tensor x =
        tape.watch(normal({rows, time_, width_}, dtype_, random_key(options_.seed, "audit input")));
    const Tensor y = f_(x, conditions);
    check(y.rank() == 3 && y.size(0) == rows && y.size(1) == time_, "audit",
          "the outputs {} do not belong to the inputs {}", y, x.detach());
    std::vector<double> weights(static_cast<size_t>(y.elements()), 0);
    const RandomKey key = random_key(options_.seed, "audit cotangent");
    const int64_t n = y.size(2);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t t = 0; t < time_; ++t)
        for (int64_t i = (r * time_ + t) * n; wanted(r, t) && i < (r * time_ + t + 1) * n; ++i)
          weights[static_cast<size_t>(i)] = random_normal(key, static_cast<uint64_t>(i));
    if (!tape.tracks(y))
      return std::vector(static_cast<size_t>(rows), std::vector<bool>(static_cast<size_t>(time_), false));
    tape.backward(y, tensor(y.shape(), weights, y.dtype()));
    const std::vector<double> dx = tape.gradient(x).values();
    std::vector<std::vector<bool>> found(static_cast<size_t>(rows));
    for (auto at = dx.begin(); at != dx.end(); at += width_)
      found[static_cast<size_t>((at - dx.begin()) / (time_ * width_))].push_back(
          std::any_of(at, at + width_, [](double v) { return v != 0 && !std::isnan(v); }));
    if (std::any_of(dx.begin(), dx.end(), [](double v) { return !std::isfinite(v); }))
      missing("a gradient is not finite");
    return found;
  }

  // The same for some positions, a row each, as many rows at once as memory allows.
  void ask(const std::vector<int64_t>& positions,
           const std::function<AuditConditions(const std::vector<int64_t>&)>& conditions, bool and_before,
           const std::function<void(int64_t position, const std::vector<bool>&, int64_t row)>& judge) {
    const int64_t most = std::max<int64_t>(1, options_.tokens_at_once / time_);
    for (size_t at = 0; at < positions.size(); at += static_cast<size_t>(most)) {
      const std::vector<int64_t> some(
          positions.begin() + static_cast<int64_t>(at),
          positions.begin() +
              std::min<int64_t>(static_cast<int64_t>(at) + most, static_cast<int64_t>(positions.size())));
      const auto found =
          depends(static_cast<int64_t>(some.size()), conditions(some), [&](int64_t r, int64_t t) {
            return t == some[static_cast<size_t>(r)] || (and_before && t < some[static_cast<size_t>(r)]);
          });
      for (size_t r = 0; r < some.size(); ++r) judge(some[r], found[r], static_cast<int64_t>(r));
    }
  }

  void batch_rows() {
    for (const int64_t row : {0, 2}) {
      const auto found = depends(3, {}, [&](int64_t r, int64_t) { return r == row; });
      for (int64_t other = 0; other < 3; ++other)
        for (size_t t = 0; other != row && t < found[static_cast<size_t>(other)].size(); ++t)
          if (found[static_cast<size_t>(other)][t])
            report_.leaks.push_back(
                fmt::format("row {} of the batch depends on row {}, at position {}", row, other, t));
    }
  }

  void each_position() {
    const auto positions = spread(options_.positions, time_);
    report_.positions = static_cast<int64_t>(positions.size());
    ask(
        positions, [](const auto&) { return AuditConditions{}; }, false,
        [&](int64_t p, const std::vector<bool>& on, int64_t) {
          later(p, on, "");
          for (int64_t must = options_.sees_previous ? std::max<int64_t>(0, p - 1) : p; must <= p; ++must)
            if (!on[static_cast<size_t>(must)])
              missing(fmt::format("position {} does not depend on position {}", p, must));
        });
  }

  void loud(double scale) {
    ask(
        spread(options_.positions_further, time_),
        [&](const auto&) { return AuditConditions{.attention_scale = scale}; }, true,
        [&](int64_t p, const std::vector<bool>& on, int64_t) {
          later(p, on, fmt::format(" (attention scale x {:.0e})", scale));
        });
  }

  // Hidden are, by turns, everything that the position could see, and half of all keys at random.
  void padded() {
    report_.positions_further = static_cast<int64_t>(spread(options_.positions_further, time_).size());
    const RandomKey key = random_key(options_.seed, "audit padding");
    std::vector<int32_t> attend;
    const auto conditions = [&](const std::vector<int64_t>& positions) {
      attend.clear();
      for (size_t r = 0; r < positions.size(); ++r)
        for (int64_t t = 0; t < time_; ++t)
          attend.push_back(r % 2 == 0 ? t > positions[r] : random_uniform(key, attend.size()) < 0.5);
      return AuditConditions{.attend =
                                 from<int32_t>({static_cast<int64_t>(positions.size()), time_}, attend)};
    };
    ask(spread(options_.positions_further, time_), conditions, false,
        [&](int64_t p, const std::vector<bool>& on, int64_t row) {
          later(p, on, " (with padding)");
          for (int64_t t = 0; t < p; ++t)
            if (on[static_cast<size_t>(t)] && !attend[static_cast<size_t>(row * time_ + t)])
              report_.leaks.push_back(
                  fmt::format("position {} depends on position {}, which is padding", p, t));
          if (const int64_t t = p - 1; options_.sees_previous && t >= 0 && !on[static_cast<size_t>(t)] &&
                                       attend[static_cast<size_t>(row * time_ + t)])
            missing(fmt::format("position {} does not depend on position {}, which is no padding", p, t));
        });
  }

  void missing(const std::string& what) {
    if (std::find(report_.missing.begin(), report_.missing.end(), what) == report_.missing.end())
      report_.missing.push_back(what);
  }

  void later(int64_t p, const std::vector<bool>& on, const std::string& condition) {
    for (int64_t t = p + 1; t < time_; ++t)
      if (on[static_cast<size_t>(t)])
        report_.leaks.push_back(
            fmt::format("position {} depends on position {}, which comes later{}", p, t, condition));
  }

  const AuditedFunction& f_;
  int64_t time_, width_;
  DType dtype_;
  AuditOptions options_;
  AuditReport& report_;
};

}  // namespace

std::string AuditReport::text() const {
  std::string out = fmt::format(
      "audit {}: {} ({} of {} positions, {} also at attention scale x 1e5 and x 1e12 and with padding; rows "
      "of the batch)\n",
      name,
      passed()         ? "passed"
      : !leaks.empty() ? "LEAKS"
                       : "proves nothing",
      positions, time, positions_further);
  constexpr size_t kMost = 5;
  for (const auto* list : {&leaks, &missing}) {
    for (size_t i = 0; i < std::min(kMost, list->size()); ++i) out += "  " + (*list)[i] + "\n";
    if (list->size() > kMost) out += fmt::format("  and {} more\n", list->size() - kMost);
  }
  return out;
}

AuditReport leak_audit(const std::string& name, const AuditedFunction& f, int64_t time, int64_t width,
                       DType dtype, const AuditOptions& options) {
  AuditReport report;
  report.name = name, report.time = time;
  Audit(f, time, width, dtype, options, report).run();
  return report;
}

}  // namespace bonsai
