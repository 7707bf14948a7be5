#include "bonsai/framework/checks/probe.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "bonsai/framework/autograd/dispatch.h"

namespace bonsai {

Probe::Probe(const DifferentiableFunction& f, const std::vector<Tensor>& inputs,
             const std::vector<Parameter*>& parameters, uint64_t seed)
    : f_(f) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool floating = inputs[i] && is_floating(inputs[i].dtype());
    check(!floating || inputs[i].dtype() == DType::f64, "gradcheck", "inputs must be f64, got {}", inputs[i]);
    inputs_.push_back(floating ? inputs[i].copy() : inputs[i]);
    if (floating) targets.push_back({"input " + std::to_string(i), inputs_.back(), nullptr});
  }
  for (Parameter* p : parameters) {
    check(p->value.dtype() == DType::f64, "gradcheck", "parameters must be f64, got {}", p->value);
    targets.push_back({p->path, p->value, p});
  }
  const Tensor y = f(inputs_);
  check(y && y.dtype() == DType::f64, "gradcheck", "the result must be f64, got {}", y);
  shape_ = y.shape();
  const RandomKey key = random_key(seed, "gradcheck cotangent");
  for (int64_t i = 0; i < y.elements(); ++i)
    cotangent_.push_back(random_normal(key, static_cast<uint64_t>(i)));
}

double Probe::value() const {
  const std::vector<double> y = f_(inputs_).values();
  check(y.size() == cotangent_.size(), "gradcheck", "the function gave {} elements, then {}",
        cotangent_.size(), y.size());
  double sum = 0;
  for (size_t i = 0; i < y.size(); ++i) sum += y[i] * cotangent_[i];
  return sum;
}

std::vector<Tensor> Probe::gradients(const std::function<void(KernelTable&)>& plant) {
  for (Target& t : targets)
    if (t.parameter) t.parameter->zero_gradient();
  Tape tape;
  std::vector<Tensor> watched;
  for (const Tensor& x : inputs_) watched.push_back(x && is_floating(x.dtype()) ? tape.watch(x) : x);
  const Tensor y = f_(watched);
  {
    std::optional<ScopedKernels> planted;
    if (plant) planted.emplace(y.device(), DType::f64, plant);
    tape.backward(y, from<double>(shape_, cotangent_, y.device()));
  }
  entries = tape.entries();
  std::vector<Tensor> all;
  size_t input = 0;
  for (Target& t : targets) {
    while (!t.parameter && !(watched[input] && is_floating(watched[input].dtype()))) ++input;
    const Tensor& x = t.parameter ? t.value : watched[input++];
    for (const Tape::Entry& e : entries) {
      const bool reads =
          t.parameter ? std::find(e.parameters.begin(), e.parameters.end(), t.parameter) != e.parameters.end()
                      : std::find(e.inputs.begin(), e.inputs.end(), x.link().slot) != e.inputs.end();
      if (reads) t.reader = e.op;
      if (reads) break;
    }
    all.push_back(tape.gradient(x).copy());
  }
  return all;
}

Line::Line(const Probe& probe, const Tensor& x, int64_t element)
    : probe_(probe), x_{x.alias({}, element)}, element_(element) {
  origin_ = {x_[0].values()};
  direction_ = {{1}};
  size_ = std::max(1.0, std::abs(origin_[0][0]));
}

Line::Line(const Probe& probe, std::vector<Tensor> x, RandomKey key) : probe_(probe), x_(std::move(x)) {
  uint64_t drawn = 0;
  double squares = 0;
  for (const Tensor& t : x_) {
    origin_.push_back(t.values());
    auto& v = direction_.emplace_back(origin_.back().size());
    for (double& d : v) d = random_normal(key, drawn++);
    for (const double x : origin_.back()) squares += x * x;
  }
  size_ = std::max(0.05, std::sqrt(squares / static_cast<double>(std::max<uint64_t>(1, drawn))));
}

Line::~Line() { move(0); }

void Line::move(double t) const {
  for (size_t k = 0; k < x_.size(); ++k) {
    std::vector<double> there = origin_[k];
    for (size_t i = 0; i < there.size(); ++i) there[i] += t * direction_[k][i];
    Tensor x = x_[k];
    copy_into(from<double>(x.shape(), there), x);
  }
}

double Line::operator()(double t) const {
  move(t);
  return probe_.value();
}

double Line::slope(double step) const {
  const double h = step * size_;
  const double near = (*this)(h) - (*this)(-h), far = (*this)(2 * h) - (*this)(-2 * h);
  return (8 * near - far) / (12 * h);
}

double Line::dot(const std::vector<Tensor>& gradients) const {
  double sum = 0;
  for (size_t k = 0; k < x_.size(); ++k) {
    const std::vector<double> g = gradients[k].values();
    const auto offset = static_cast<size_t>(std::max<int64_t>(0, element_));
    for (size_t i = 0; i < direction_[k].size(); ++i) sum += g[offset + i] * direction_[k][i];
  }
  return sum;
}

}  // namespace bonsai
