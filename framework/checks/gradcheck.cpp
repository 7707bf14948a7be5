#include "framework/checks/gradcheck.h"

#include <algorithm>
#include <cmath>

#include "framework/autograd/tape.h"
#include "framework/core/rng.h"

namespace bonsai {
namespace {

struct Problem {
  const DifferentiableFunction& f;
  std::vector<Tensor> inputs;
  std::vector<double> cotangent;

  double value() const {
    const std::vector<double> y = f(inputs).values();
    check(y.size() == cotangent.size(), "gradcheck", "the function gave {} elements, then {}",
          cotangent.size(), y.size());
    double sum = 0;
    for (size_t i = 0; i < y.size(); ++i) sum += y[i] * cotangent[i];
    return sum;
  }

  // The derivative along one element, by five points.
  double slope(double& element, double step) const {
    const double x = element, h = step * std::max(1.0, std::abs(x));
    const auto at = [&](double value) {
      element = value;
      return this->value();
    };
    const double near = at(x + h) - at(x - h), far = at(x + 2 * h) - at(x - 2 * h);
    element = x;
    return (8 * near - far) / (12 * h);
  }
};

std::string index_of(int64_t flat, const Shape& shape) {
  Shape index = shape;
  for (int i = shape.rank - 1; i >= 0; --i) {
    index.dim[i] = flat % shape.dim[i];
    flat /= shape.dim[i];
  }
  return index.str();
}

std::vector<int64_t> chosen_elements(int64_t elements, const GradcheckOptions& o, size_t tensor) {
  std::vector<int64_t> all;
  const RandomKey key = random_key(o.seed, "gradcheck elements " + std::to_string(tensor));
  const bool every = o.samples == 0 || o.samples >= elements;
  for (int64_t i = 0; every && i < elements; ++i) all.push_back(i);
  std::set<int64_t> drawn;
  for (uint64_t i = 0; !every && static_cast<int64_t>(drawn.size()) < o.samples; ++i)
    drawn.insert(static_cast<int64_t>(random_uniform(key, i) * static_cast<double>(elements)));
  all.insert(all.end(), drawn.begin(), drawn.end());
  return all;
}

void check_tensor(const Problem& problem, Tensor& x, const Tensor& gradient, size_t number,
                  const GradcheckOptions& options, GradcheckTensor& result) {
  const std::vector<double> analytic = gradient.values();
  result.shape = name_of(x.dtype()) + x.shape().str();
  result.elements = x.elements();
  result.all_zero = !analytic.empty() &&
                    std::all_of(analytic.begin(), analytic.end(), [](double a) { return a == 0; });
  double* element = x.mutable_span<double>().data();
  for (int64_t i : chosen_elements(x.elements(), options, number)) {
    const double a = analytic[static_cast<size_t>(i)];
    const double n = problem.slope(element[i], options.step);
    const double error = std::abs(a - n) / std::max({1e-3, std::abs(a), std::abs(n)});
    ++result.checked;
    if (error <= result.error) continue;  // not taken by NaN
    result.index = index_of(i, x.shape());
    result.analytic = a, result.numeric = n;
    result.error = std::isnan(error) ? INFINITY : error;
  }
}

}  // namespace

int64_t GradcheckReport::elements_checked() const {
  int64_t n = 0;
  for (const auto& t : tensors) n += t.checked;
  return n;
}

bool GradcheckReport::passed() const {
  return unreached.empty() && elements_checked() > 0 &&
         std::all_of(tensors.begin(), tensors.end(), [&](const GradcheckTensor& t) {
           return t.error <= tolerance && !t.all_zero;
         });
}

std::string GradcheckReport::text() const {
  std::string out = fmt::format("gradcheck {}: {} ({} ops, {} layers, {} tensors, {} elements)\n", name,
                                passed() ? "passed" : "FAILED", ops.size(), layers.size(),
                                tensors.size(), elements_checked());
  std::vector<GradcheckTensor> worst = tensors;
  std::stable_sort(worst.begin(), worst.end(),
                   [](const auto& a, const auto& b) { return a.error > b.error; });
  for (const auto& t : worst) {
    if (t.error > tolerance)
      out += fmt::format("  [{}] {} {} at {}: backward gives {:.9g}, differences give {:.9g}, error {:.2g} (at most {:.0e})\n",
                         t.op, t.name, t.shape, t.index, t.analytic, t.numeric, t.error, tolerance);
    if (t.all_zero)
      out += fmt::format("  [{}] {} {}: the whole gradient is zero; nothing is proven\n", t.op, t.name, t.shape);
  }
  for (const auto& op : unreached)
    out += fmt::format("  [{}] was recorded, but no gradient reached it\n", op);
  if (elements_checked() == 0) out += "  no element was checked; nothing is proven\n";
  return out;
}

GradcheckReport gradcheck(const std::string& name, const DifferentiableFunction& f,
                          const std::vector<Tensor>& inputs, const std::vector<Parameter*>& parameters,
                          const GradcheckOptions& options) {
  GradcheckReport report;
  report.name = name, report.tolerance = options.tolerance;
  for (Parameter* p : parameters) p->zero_gradient();

  Tape tape;
  Problem problem{f, {}, {}};
  std::vector<Tensor> watched;
  for (const Tensor& x : inputs) {
    const bool floating = x && is_floating(x.dtype());
    check(!floating || x.dtype() == DType::f64, "gradcheck", "inputs must be f64, got {}", x);
    problem.inputs.push_back(floating ? x.copy() : x);
    watched.push_back(floating ? tape.watch(x) : x);
  }
  const Tensor y = f(watched);
  check(y && y.dtype() == DType::f64, "gradcheck", "the result must be f64, got {}", y);
  const RandomKey key = random_key(options.seed, "gradcheck cotangent");
  for (int64_t i = 0; i < y.elements(); ++i)
    problem.cotangent.push_back(random_normal(key, static_cast<uint64_t>(i)));
  tape.backward(y, from<double>(y.shape(), problem.cotangent));

  const auto entries = tape.entries();
  for (const auto& e : entries) {
    report.ops.insert(e.op);
    if (e.path && !e.path->empty()) report.layers.insert(*e.path);
    if (!e.reached) report.unreached.push_back(e.path ? fmt::format("{} in {}", e.op, *e.path) : e.op);
  }
  const auto reader = [&](const Parameter* p) -> std::string {
    for (const auto& e : entries)
      if (std::find(e.parameters.begin(), e.parameters.end(), p) != e.parameters.end()) return e.op;
    return "no op";
  };
  const auto reader_of_slot = [&](int32_t slot) -> std::string {
    for (const auto& e : entries)
      if (std::find(e.inputs.begin(), e.inputs.end(), slot) != e.inputs.end()) return e.op;
    return "no op";
  };
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i] || !is_floating(inputs[i].dtype())) continue;
    GradcheckTensor& t = report.tensors.emplace_back();
    t.name = fmt::format("input {}", i), t.op = reader_of_slot(watched[i].link().slot);
    check_tensor(problem, problem.inputs[i], tape.gradient(watched[i]), report.tensors.size(), options, t);
  }
  for (Parameter* p : parameters) {
    GradcheckTensor& t = report.tensors.emplace_back();
    t.name = p->path, t.op = reader(p);
    const Tensor gradient = tape.gradient(p->value).copy();
    check_tensor(problem, p->value, gradient, report.tensors.size(), options, t);
  }
  return report;
}

}  // namespace bonsai
