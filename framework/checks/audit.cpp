#include "bonsai/framework/checks/audit.h"

#include <algorithm>
#include <cmath>

#include "bonsai/framework/autograd/dispatch.h"
#include "bonsai/framework/autograd/tape.h"
#include "bonsai/framework/core/rng.h"

namespace bonsai {
namespace {

Tensor normal(const Shape& shape, DType dtype, RandomKey key, Device device) {
  std::vector<double> values(static_cast<size_t>(shape.elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = random_normal(key, i);
  return tensor(shape, values, dtype, device);
}

// `count` evenly spread indices below `all`, the first and the last included.
std::vector<int64_t> spread(int64_t count, int64_t all) {
  std::vector<int64_t> chosen;
  if (count <= 0 || count > all) count = all;
  for (int64_t i = 0; i < count; ++i) chosen.push_back(count == 1 ? all - 1 : i * (all - 1) / (count - 1));
  return chosen;
}

// Padding and documents of a batch; every row has its own pattern.
struct Hidden {
  std::vector<int32_t> padding_mask, segment_ids, output_segment_ids;  // empty: nothing is hidden
};

class Audit {
 public:
  Audit(const AuditedFunction& f, int64_t time, int64_t width, DType dtype, const AuditOptions& options,
        AuditReport& report)
      : f_(f),
        time_(time),
        outputs_(options.outputs ? options.outputs : time),
        width_(width),
        dtype_(dtype),
        options_(options),
        report_(report) {}

  void run() {
    const auto all = spread(options_.positions, outputs_),
               some = spread(options_.positions_further, outputs_);
    report_.positions = static_cast<int64_t>(all.size());
    report_.positions_further = static_cast<int64_t>(some.size());
    const std::string further = fmt::format(
        ", {} also with padding and documents and at attention scale x 1e5 and x 1e12", some.size());
    report_.checked = fmt::format("{} of {} positions{}; rows of the batch", all.size(), outputs_,
                                  options_.attends ? further : "");
    batch_rows();
    ask(all, 1, false);
    if (!options_.attends) return;
    ask(some, 1, true);
    // If another attention scale leaves the outputs as they are, f ignores the scale.
    const Tensor x = input(1);
    const std::vector<double> usual = f_(x, {}).values();
    for (const double scale : {1e5, 1e12}) {
      if (time_ > 1 && options_.sees_next && f_(x, {.attention_scale = scale}).values() == usual)
        missing(fmt::format("the attention scale x {:.0e} changes no output", scale));
      if (causal()) ask(some, scale, false);
      ask(some, scale, true);
    }
  }

  void position_wise(int64_t passes) {
    report_.positions = time_, report_.checked = fmt::format("{} positions", time_);
    const RandomKey key = random_key(options_.seed, "audit halves");
    // Inputs that reach outputs at other positions.
    std::vector<bool> from(static_cast<size_t>(time_), false);
    bool any = false;
    for (int64_t pass = 0; pass < passes; ++pass) {
      const auto asked = [&](int64_t row, int64_t t) {
        return (random_uniform(key, static_cast<uint64_t>(pass * time_ + t)) < 0.5) == (row == 0);
      };
      const auto found = depends(2, {}, asked);
      for (int64_t row = 0; row < 2; ++row)
        for (int64_t t = 0; t < time_; ++t) {
          const bool depends = found[static_cast<size_t>(row)][static_cast<size_t>(t)];
          any |= depends;
          if (depends && !asked(row, t)) from[static_cast<size_t>(t)] = true;
        }
    }
    if (!any) missing("no output depends on any input");
    if (const auto first = std::find(from.begin(), from.end(), true); first != from.end())
      report_.faults.push_back(
          fmt::format("the inputs at {} of {} positions change outputs at other positions, that at {} first",
                      std::count(first, from.end(), true), time_, first - from.begin()));
  }

 private:
  using Wanted = std::function<bool(int64_t row, int64_t position)>;

  bool own_inputs() const { return options_.outputs == 0; }
  bool causal() const { return options_.causal && own_inputs(); }

  Tensor input(int64_t rows) const {
    return normal({rows, time_, width_}, dtype_, random_key(options_.seed, "audit input"), options_.device);
  }

  // [row][input]: true if a wanted output of the batch depends on the input: its gradient is not exactly 0.
  std::vector<std::vector<bool>> depends(int64_t rows, const AuditConditions& conditions,
                                         const Wanted& wanted) {
    Tape tape;
    const Tensor x = tape.watch(input(rows));
    const Tensor y = f_(x, conditions);
    check(y.rank() == 3 && y.size(0) == rows && y.size(1) == outputs_, "audit",
          "the outputs {} do not belong to the inputs {}", y, x.detach());
    std::vector<double> weights(static_cast<size_t>(y.elements()), 0);
    const RandomKey key = random_key(options_.seed, "audit cotangent");
    const int64_t n = y.size(2);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t t = 0; t < outputs_; ++t)
        for (int64_t i = (r * outputs_ + t) * n; wanted(r, t) && i < (r * outputs_ + t + 1) * n; ++i)
          weights[static_cast<size_t>(i)] = random_normal(key, static_cast<uint64_t>(i));
    if (!tape.tracks(y))
      return std::vector(static_cast<size_t>(rows), std::vector<bool>(static_cast<size_t>(time_), false));
    tape.backward(y, tensor(y.shape(), weights, y.dtype(), y.device()));
    const std::vector<double> dx = tape.gradient(x).values();
    std::vector<std::vector<bool>> found(static_cast<size_t>(rows));
    for (auto at = dx.begin(); at != dx.end(); at += width_)
      found[static_cast<size_t>((at - dx.begin()) / (time_ * width_))].push_back(
          std::any_of(at, at + width_, [](double v) { return v != 0 && !std::isnan(v); }));
    if (std::any_of(dx.begin(), dx.end(), [](double v) { return !std::isfinite(v); }))
      missing("a gradient is not finite");
    return found;
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

  // The patterns alternate: everything that the position could see is padding; a random half is padding;
  // documents are packed. The pattern depends on the index of the position, which starts at `first`.
  Hidden hidden(const std::vector<int64_t>& positions, size_t first) const {
    Hidden h;
    const RandomKey key = random_key(options_.seed, "audit padding");
    for (size_t r = first; r < first + positions.size(); ++r) {
      for (int64_t t = 0; t < time_; ++t) {
        const bool kept = random_uniform(key, r * static_cast<size_t>(time_) + static_cast<size_t>(t)) < 0.5;
        h.padding_mask.push_back(r % 3 == 0 ? causal() && t > positions[r - first] : r % 3 == 2 || kept);
        h.segment_ids.push_back(r % 3 == 2 ? document(t, time_, 2 + static_cast<int64_t>(r) % 4) : 0);
      }
      // The last output has a document that no input has.
      for (int64_t t = 0; t < outputs_; ++t)
        h.output_segment_ids.push_back(r % 3 == 2 ? document(t, outputs_, 3 + static_cast<int64_t>(r) % 4)
                                                  : 0);
    }
    return h;
  }
  static int32_t document(int64_t t, int64_t time, int64_t count) {
    return static_cast<int32_t>(t * count / time);
  }

  // Checks some positions, one per row and as many rows at once as memory allows. At a larger attention
  // scale, a causal position is checked together with all earlier ones: none of them may depend on the
  // future.
  void ask(const std::vector<int64_t>& positions, double scale, bool hides) {
    const int64_t most = std::max<int64_t>(1, options_.tokens_at_once / std::max(time_, outputs_));
    for (size_t at = 0; at < positions.size(); at += static_cast<size_t>(most)) {
      const size_t end = std::min(positions.size(), at + static_cast<size_t>(most));
      const std::vector<int64_t> some(positions.begin() + static_cast<int64_t>(at),
                                      positions.begin() + static_cast<int64_t>(end));
      const auto rows = static_cast<int64_t>(some.size());
      const Hidden h = hides ? hidden(some, at) : Hidden{};
      AuditConditions conditions{.attention_scale = scale};
      if (hides) {
        conditions.padding_mask = from<int32_t>({rows, time_}, h.padding_mask, options_.device);
        conditions.segment_ids = from<int32_t>({rows, time_}, h.segment_ids, options_.device);
        conditions.output_segment_ids =
            from<int32_t>({rows, outputs_}, h.output_segment_ids, options_.device);
      }
      const bool and_before = causal() && scale != 1 && !hides;
      const auto found = depends(rows, conditions, [&](int64_t r, int64_t t) {
        const int64_t p = some[static_cast<size_t>(r)];
        return t == p || (and_before && t < p);
      });
      for (int64_t r = 0; r < rows; ++r)
        judge(some[static_cast<size_t>(r)], r, found[static_cast<size_t>(r)], h, scale);
    }
  }

  void judge(int64_t p, int64_t row, const std::vector<bool>& on, const Hidden& h, double scale) {
    const std::string loud = scale == 1 ? "" : fmt::format(" (attention scale x {:.0e})", scale);
    for (int64_t t = 0; t < time_; ++t) {
      const std::string why = forbidden(p, t, row, h);
      const bool depends = on[static_cast<size_t>(t)];
      if (depends && !why.empty())
        report_.leaks.push_back(
            fmt::format("position {} depends on position {}, which {}{}", p, t, why, loud));
      // At a larger scale, softmax may select a single key, so a dependence is required only at scale 1.
      const bool beside = !own_inputs() || t == p || (options_.sees_next && std::abs(p - t) == 1);
      if (!depends && why.empty() && scale == 1 && beside)
        missing(fmt::format("position {} does not depend on position {}{}", p, t,
                            h.padding_mask.empty() ? "" : ", which is no padding"));
    }
  }

  // Why output p may not depend on input t; empty if it may.
  std::string forbidden(int64_t p, int64_t t, int64_t row, const Hidden& h) const {
    const auto at = static_cast<size_t>(row * time_ + t);
    if (causal() && t > p) return h.padding_mask.empty() ? "comes later" : "comes later (with padding)";
    if (h.padding_mask.empty() || (own_inputs() && t == p)) return "";
    if (!h.padding_mask[at]) return "is padding";
    const int32_t own = own_inputs() ? h.segment_ids[static_cast<size_t>(row * time_ + p)]
                                     : h.output_segment_ids[static_cast<size_t>(row * outputs_ + p)];
    return h.segment_ids[at] == own ? "" : "is of another document";
  }

  void missing(const std::string& what) {
    if (std::find(report_.missing.begin(), report_.missing.end(), what) == report_.missing.end())
      report_.missing.push_back(what);
  }

  const AuditedFunction& f_;
  int64_t time_, outputs_, width_;
  DType dtype_;
  AuditOptions options_;
  AuditReport& report_;
};

}  // namespace

std::string AuditReport::text() const {
  const char* verdict = passed()            ? "passed"
                        : !leaks.empty()  ? "LEAKS"
                        : !faults.empty() ? "FAILED"
                                          : "proves nothing";
  std::string out = fmt::format("audit {}: {} ({})\n", name, verdict, checked);
  constexpr size_t kMax = 5;
  for (const auto* list : {&leaks, &faults, &missing}) {
    for (size_t i = 0; i < std::min(kMax, list->size()); ++i) out += "  " + (*list)[i] + "\n";
    if (list->size() > kMax) out += fmt::format("  and {} more\n", list->size() - kMax);
  }
  return out;
}

AuditReport leak_audit(const std::string& name, const AuditedFunction& f, int64_t time, int64_t width,
                       DType dtype, const AuditOptions& options) {
  AuditReport report;
  report.name = name;
  Audit(f, time, width, dtype, options, report).run();
  return report;
}

AuditReport position_wise_audit(const std::string& name, const AuditedFunction& f, int64_t time,
                                int64_t width, int64_t passes, DType dtype, const AuditOptions& options) {
  AuditReport report;
  report.name = name;
  Audit(f, time, width, dtype, options, report).position_wise(passes);
  return report;
}

}  // namespace bonsai
