#include "bonsai/framework/checks/gradcheck.h"

#include <algorithm>
#include <cmath>

namespace bonsai {
namespace {

// Factors of the step, used in turn until the error is small enough. A smaller step avoids a kink and has a
// smaller truncation error; a larger step has a smaller rounding error.
constexpr double kSteps[] = {1, 1.0 / 30, 1e-3, 10};

std::string index_of(int64_t flat, const Shape& shape) {
  Shape index = shape;
  for (int i = shape.rank - 1; i >= 0; --i) {
    index.dim[i] = flat % shape.dim[i];
    flat /= shape.dim[i];
  }
  return index.str();
}

std::vector<int64_t> chosen_elements(int64_t elements, const GradcheckOptions& o, size_t tensor, bool input) {
  std::vector<int64_t> all;
  const bool every = elements <= std::max(input ? o.input_in_full : o.in_full, o.samples);
  for (int64_t i = 0; every && i < elements; ++i) all.push_back(i);
  const RandomKey key = random_key(o.seed, "gradcheck elements " + std::to_string(tensor));
  std::set<int64_t> drawn;
  for (uint64_t i = 0; !every && static_cast<int64_t>(drawn.size()) < o.samples; ++i)
    drawn.insert(static_cast<int64_t>(random_uniform(key, i) * static_cast<double>(elements)));
  all.insert(all.end(), drawn.begin(), drawn.end());
  return all;
}

// Sets the kind of the failure along this line and its errors at steps from 0.1 to 1e-7.
void diagnose(const Line& line, GradcheckTensor& t) {
  constexpr int kPoints = 7;
  double central[kPoints], left[kPoints], right[kPoints];
  const double here = line(0), again = line(0);
  const auto not_finite = [](double v) { return !std::isfinite(v); };
  for (int k = 0; k < kPoints; ++k) {
    const double step = std::pow(10.0, -1 - k), h = step * line.size();
    const double after = line(h), before = line(-h);
    central[k] = (after - before) / (2 * h), right[k] = (after - here) / h, left[k] = (here - before) / h;
    t.curve.push_back({step, gradcheck_error(t.analytic, central[k])});
  }
  if (not_finite(here) || not_finite(t.analytic) || std::any_of(central, central + kPoints, not_finite))
    t.fault = GradcheckFailure::not_finite;
  else if (here != again)
    t.fault = GradcheckFailure::not_deterministic;
  if (t.fault != GradcheckFailure::none) return;
  const double unit = std::max({1e-3, std::abs(t.analytic), std::abs(t.numeric)});
  const auto change = [&](const double* slope, int k) { return std::abs(slope[k] - slope[k + 1]) / unit; };
  t.fault = GradcheckFailure::wrong;
  for (int k = 2; k < 5; ++k) {
    const double gap = std::abs(right[k + 1] - left[k + 1]) / unit;
    if (gap > 1e-3 && change(right, k) < gap / 20 && change(left, k) < gap / 20)
      t.fault = GradcheckFailure::kink;
  }
  if (t.fault == GradcheckFailure::kink) return;
  // Differences at three steps that agree far better with each other than with the gradient have converged to
  // another value. A value of 0 does not count unless all are 0: rounding may absorb small steps.
  const bool all_zero = std::all_of(central, central + kPoints, [](double n) { return n == 0; });
  bool settled = all_zero;
  for (int k = 0; k + 2 < kPoints; ++k) {
    const double near = t.curve[static_cast<size_t>(k) + 1].error / 20;
    settled |= change(central, k) < near && change(central, k + 1) < near && central[k + 1] != 0;
  }
  // The rounding error grows as 1 / step: small at some step, then large at the smallest.
  double least = INFINITY;
  for (const CurvePoint& p : t.curve) least = std::min(least, p.error);
  if (!settled || (least < 1e-4 && t.curve.back().error > 100 * least))
    t.fault = GradcheckFailure::float_noise;
}

class Checker {
 public:
  Checker(Probe& probe, const GradcheckOptions& options) : probe_(probe), options_(options) {}

  void check_target(size_t number, const Tensor& gradient, bool in_directions, GradcheckTensor& t) {
    const Tensor x = probe_.targets[number].value;
    const std::vector<double> analytic = gradient.values();
    t.name = probe_.targets[number].name, t.op = probe_.targets[number].reader;
    t.shape = name_of(x.dtype()) + x.shape().str();
    t.elements = x.elements();
    std::function<void()> diagnosis;
    if (!in_directions)
      for (const int64_t i :
           chosen_elements(x.elements(), options_, number, !probe_.targets[number].parameter)) {
        ++t.checked;
        const Line line(probe_, x, i);
        if (worse(line, analytic[static_cast<size_t>(i)], t)) {
          t.place = "at " + index_of(i, x.shape());
          diagnosis = [this, x, i, &t] { diagnose(Line(probe_, x, i), t); };
          if (options_.to_first_failure && t.error > options_.tolerance) return;
        }
      }
    if (t.checked < t.elements)
      for (int64_t d = 0; d < options_.directions; ++d) {
        ++t.directions;
        const RandomKey key =
            random_key(options_.seed, fmt::format("gradcheck direction {} of {}", d, t.name));
        const Line line(probe_, {x}, key);
        if (worse(line, line.dot({gradient}), t)) {
          t.place = "along a random direction";
          diagnosis = [this, x, key, &t] { diagnose(Line(probe_, {x}, key), t); };
        }
      }
    if (t.error > options_.tolerance) diagnosis();
    t.all_zero = !analytic.empty() && t.error <= options_.tolerance &&
                 std::all_of(analytic.begin(), analytic.end(), [](double a) { return a == 0; });
  }

 private:
  // Updates t and returns true if this line has the largest error so far.
  bool worse(const Line& line, double analytic, GradcheckTensor& t) {
    double numeric = 0, error = INFINITY;
    for (const double factor : kSteps) {
      const double n = line.slope(options_.step * factor), e = gradcheck_error(analytic, n);
      if (factor == 1 || e < error) numeric = n, error = e;
      if (e > options_.tolerance) continue;
      t.other_step += factor != 1;
      break;
    }
    if (error <= t.error) return false;
    t.analytic = analytic, t.numeric = numeric, t.error = error;
    return true;
  }

  Probe& probe_;
  const GradcheckOptions& options_;
};

const char* words(GradcheckFailure fault) {
  switch (fault) {
    case GradcheckFailure::none:
      return "";
    case GradcheckFailure::wrong:
      return "wrong";
    case GradcheckFailure::not_finite:
      return "not finite";
    case GradcheckFailure::float_noise:
      return "float noise";
    case GradcheckFailure::kink:
      return "a kink";
    case GradcheckFailure::not_deterministic:
      return "not deterministic";
  }
  return "";
}

std::string curve_text(const std::vector<CurvePoint>& curve) {
  std::string steps, errors;
  for (const CurvePoint& p : curve)
    steps += fmt::format("{:>9.0e}", p.step), errors += fmt::format("{:>9.1e}", p.error);
  return fmt::format("      step  {}\n      error {}\n", steps, errors);
}

}  // namespace

double gradcheck_error(double analytic, double numeric) {
  const double error = std::abs(analytic - numeric) / std::max({1e-3, std::abs(analytic), std::abs(numeric)});
  return std::isnan(error) ? INFINITY : error;
}

int64_t GradcheckReport::elements() const {
  int64_t n = 0;
  for (const auto& t : tensors) n += t.elements;
  return n;
}

int64_t GradcheckReport::elements_checked() const {
  int64_t n = 0;
  for (const auto& t : tensors) n += t.checked;
  return n;
}

bool GradcheckReport::nothing_wrong() const {
  return not_deterministic.empty() && unreached.empty() &&
         std::all_of(tensors.begin(), tensors.end(), [&](const GradcheckTensor& t) {
           return t.error <= tolerance && (t.checked > 0 || t.directions > 0);
         });
}

bool GradcheckReport::proves_nothing() const {
  return nothing_wrong() &&
         std::all_of(tensors.begin(), tensors.end(), [](const GradcheckTensor& t) { return t.all_zero; });
}

bool GradcheckReport::passed() const { return nothing_wrong() && !proves_nothing(); }

std::string GradcheckReport::text() const {
  int64_t directions = 0, other_step = 0;
  for (const auto& t : tensors) directions += t.directions, other_step += t.other_step;
  std::string out = fmt::format("gradcheck {}: {} ({} ops, {} layers, {} tensors, {} of {} elements", name,
                                passed()           ? "passed"
                                : proves_nothing() ? "PROVES NOTHING"
                                                   : "FAILED",
                                ops.size(), layers.size(), tensors.size(), elements_checked(), elements());
  if (directions > 0) out += fmt::format(", {} directions", directions);
  if (other_step > 0) out += fmt::format("; {} of these agree only with another difference step", other_step);
  out += ")\n";
  if (!not_deterministic.empty()) out += fmt::format("  not deterministic: {}\n", not_deterministic);
  std::vector<std::string> lines;
  std::vector<GradcheckTensor> worst = tensors;
  std::stable_sort(worst.begin(), worst.end(),
                   [](const auto& a, const auto& b) { return a.error > b.error; });
  for (const auto& t : worst) {
    const std::string tensor = fmt::format("{}{} {}", t.op.empty() ? "" : "[" + t.op + "] ", t.name, t.shape);
    if (t.error > tolerance)
      lines.push_back(fmt::format(
          "  {} {} is {}: backward gives {:.9g}, differences give {:.9g}, error {:.2g} (at most {:.0e}){}\n",
          tensor, t.place, words(t.fault), t.analytic, t.numeric, t.error, tolerance,
          t.op.empty() ? "; no recorded op reads it, as if it were detached" : ""));
    if (t.error > tolerance && lines.size() <= 2) lines.back() += curve_text(t.curve);
    if (t.all_zero)
      lines.push_back(
          fmt::format("  {}: gradient and differences are all zero; they agree, but prove nothing{}\n",
                      tensor, t.op.empty() ? "; no recorded op reads it" : ""));
    else if (t.checked == 0 && t.directions == 0)
      lines.push_back(fmt::format("  {}: no element was checked; nothing is proven\n", tensor));
  }
  for (const auto& op : unreached)
    lines.push_back(fmt::format("  [{}] was recorded, but no gradient reached it\n", op));
  if (tensors.empty()) lines.push_back("  there is nothing to check; nothing is proven\n");
  constexpr size_t kMax = 7;  // with two curves and the lines around them, 14 lines in all
  for (size_t i = 0; i < std::min(kMax, lines.size()); ++i) out += lines[i];
  if (lines.size() > kMax) out += fmt::format("  and {} more\n", lines.size() - kMax);
  return out;
}

namespace {

bool same_numbers(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = a.values(), y = b.values();
  return std::equal(x.begin(), x.end(), y.begin(), y.end(),
                    [](double u, double v) { return u == v || (std::isnan(u) && std::isnan(v)); });
}

}  // namespace

GradcheckReport gradcheck(const std::string& name, const DifferentiableFunction& f,
                          const std::vector<Tensor>& inputs, const std::vector<Parameter*>& parameters,
                          const GradcheckOptions& options, const std::vector<Parameter*>& in_directions) {
  std::vector<Parameter*> all = parameters;
  all.insert(all.end(), in_directions.begin(), in_directions.end());
  Probe probe(f, inputs, all, options.seed);
  const std::vector<Tensor> gradients = probe.gradients();
  GradcheckReport report = gradcheck(name, probe, gradients, options, in_directions.size());
  if (!report.not_deterministic.empty()) return report;
  const std::vector<Tensor> again = probe.gradients();
  for (size_t i = 0; i < gradients.size() && report.not_deterministic.empty(); ++i)
    if (!same_numbers(gradients[i], again[i]))
      report.not_deterministic = fmt::format("backward gave two gradients of {}", probe.targets[i].name);
  return report;
}

GradcheckReport gradcheck(const std::string& name, Probe& probe, const std::vector<Tensor>& gradients,
                          const GradcheckOptions& options, size_t in_directions) {
  GradcheckReport report;
  report.name = name, report.tolerance = options.tolerance;
  for (const auto& e : probe.entries) {
    report.ops.insert(e.op);
    if (e.path && !e.path->empty()) report.layers.insert(*e.path);
    if (!e.reached) report.unreached.push_back(e.path ? fmt::format("{} in {}", e.op, *e.path) : e.op);
  }
  if (const double once = probe.value(), twice = probe.value(); once != twice && !std::isnan(once))
    report.not_deterministic = fmt::format(
        "the same inputs gave {:.17g}, then {:.17g}; draw random numbers from a fixed key", once, twice);
  Checker checker(probe, options);
  report.tensors.resize(probe.targets.size());
  for (size_t i = 0; i < probe.targets.size(); ++i) {
    GradcheckTensor& t = report.tensors[i];
    checker.check_target(i, gradients[i], i + in_directions >= probe.targets.size(), t);
    if (options.to_first_failure && t.error > options.tolerance) break;
  }
  return report;
}

}  // namespace bonsai
