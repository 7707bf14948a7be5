#include "bonsai/framework/checks/mutate.h"

#include <algorithm>
#include <cmath>

#include "bonsai/framework/checks/gradcheck.h"

namespace bonsai {
namespace {

// A way to make a gradient wrong, and why it may change nothing.
struct Change {
  std::string name, otherwise;
  std::function<Tensor(const Tensor&)> make;
};

Tensor mapped(const Tensor& g, const std::function<double(const std::vector<double>&, Shape index)>& at) {
  const std::vector<double> from = g.values();
  std::vector<double> to;
  for (int64_t i = 0; i < g.elements(); ++i) {
    Shape index = g.shape();
    int64_t rest = i;
    for (int axis = index.rank - 1; axis >= 0; --axis)
      index.dim[axis] = rest % g.size(axis), rest /= g.size(axis);
    to.push_back(at(from, index));
  }
  return tensor(g.shape(), to, g.dtype());
}

double element(const std::vector<double>& values, const Shape& shape, const Shape& index) {
  int64_t flat = 0;
  for (int axis = 0; axis < shape.rank; ++axis) flat = flat * shape.dim[axis] + index.dim[axis];
  return values[static_cast<size_t>(flat)];
}

Change times(const std::string& name, double factor) {
  return {name, "the gradient is zero", [factor](const Tensor& g) {
            std::vector<double> values = g.values();
            for (double& v : values) v *= factor;
            return tensor(g.shape(), values, g.dtype());
          }};
}

std::vector<Change> changes_of(const Shape& shape) {
  std::vector<Change> all = {times("sign", -1), times("factor 1.001", 1.001), times("left out", 0)};
  for (int a = 0; a < shape.rank; ++a)
    for (int b = a + 1; b < shape.rank; ++b)
      if (shape.dim[a] == shape.dim[b] && shape.dim[a] > 1)
        all.push_back({fmt::format("axes {} and {} swapped", a, b), "the gradient is symmetric in them",
                       [=](const Tensor& g) {
                         return mapped(g, [&](const std::vector<double>& v, Shape index) {
                           std::swap(index.dim[a], index.dim[b]);
                           return element(v, g.shape(), index);
                         });
                       }});
  for (int axis = 0; axis < shape.rank; ++axis)
    if (shape.dim[axis] > 1)
      all.push_back({fmt::format("index of axis {} off by one", axis),
                     "the gradient is the same all along it", [=](const Tensor& g) {
                       return mapped(g, [&](const std::vector<double>& v, Shape index) {
                         index.dim[axis] = (index.dim[axis] + 1) % g.size(axis);
                         return element(v, g.shape(), index);
                       });
                     }});
  return all;
}

// Stores the gradients of a backward pass by (node, input).
struct Listener final : OpWatcher {
  bool replaces() const override { return true; }  // takes the same path as Tamperer
  struct Seen {
    std::string op;
    size_t node, input;
    Tensor gradient;
  };
  std::vector<Seen> seen;
  void gradient(const char* op, size_t node, size_t input, Tensor& g) override {
    seen.push_back({op, node, input, g.copy()});
  }
};

struct Tamperer final : OpWatcher {
  size_t node, input;
  const Change& change;
  Tamperer(size_t node, size_t input, const Change& change) : node(node), input(input), change(change) {}
  bool replaces() const override { return true; }
  void gradient(const char*, size_t n, size_t i, Tensor& g) override {
    if (n == node && i == input) g = change.make(g);
  }
};

bool same(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  for (size_t t = 0; t < a.size(); ++t) {
    const auto x = a[t].values(), y = b[t].values();
    double largest = 0;
    for (const double v : y) largest = std::max(largest, std::abs(v));
    for (size_t i = 0; i < x.size(); ++i)
      if (!(std::abs(x[i] - y[i]) <= 1e-12 * largest)) return false;
  }
  return true;
}

}  // namespace

MutationReport mutate(const OpCase& row) {
  MutationReport report;
  report.row = row.name();
  Probe probe(row.call, make_inputs(row, DType::f64), {}, 1);
  Listener listener;
  std::vector<Tensor> right;
  {
    const ScopedWatcher watch(listener);
    right = probe.gradients();
  }
  check(gradcheck(row.name(), probe, right).passed(), "mutate", "{}: the gradient is wrong before any change",
        row.name());

  const auto judge = [&](const std::string& mutant, const std::string& otherwise,
                         const std::vector<Tensor>& gradients) {
    if (same(gradients, right)) {
      check(!otherwise.empty(), "mutate", "{}: {} changes no gradient; give the mutant a reason", row.name(),
            mutant);
      report.equivalent.push_back(fmt::format("{} ({})", mutant, otherwise));
      return false;
    }
    if (gradcheck(mutant, probe, gradients, {.to_first_failure = true}).passed())
      report.missed.push_back(mutant);
    else
      ++report.caught;
    return true;
  };
  for (const auto& seen : listener.seen)
    for (const Change& change : changes_of(seen.gradient.shape())) {
      Tamperer tamperer(seen.node, seen.input, change);
      const ScopedWatcher watch(tamperer);
      const bool equal = same({change.make(seen.gradient)}, {seen.gradient});
      judge(fmt::format("{} {} input {}: {}", seen.op, seen.node, seen.input, change.name),
            equal ? change.otherwise : "a later op of the row takes the difference out", probe.gradients());
    }
  for (const KernelMutant& mutant : kernel_mutants()) {
    const int64_t before = planted_calls();
    const std::vector<Tensor> gradients = probe.gradients(mutant.plant);
    if (planted_calls() == before) continue;  // this backward does not call the kernel
    const std::string name = mutant.kernel + ": " + mutant.change;
    if (judge(name, mutant.otherwise, gradients)) report.effective.insert(name);
  }
  return report;
}

}  // namespace bonsai
