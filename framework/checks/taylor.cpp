#include "framework/checks/taylor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace bonsai {

std::string TaylorReport::text() const {
  std::string out = fmt::format("taylor {}: {}, ", name, passed() ? "passed" : "FAILED");
  if (linear) return out + "linear along the direction: no remainder but rounding\n";
  out += fmt::format("slope {:.3f} (at least {}) from", least, kLeast);
  for (const double s : slopes) out += fmt::format(" {:.2f}", s);
  return out + "\n";
}

TaylorReport taylor(const std::string& name, const DifferentiableFunction& f, const std::vector<Tensor>& inputs,
                    const std::vector<Parameter*>& parameters, uint64_t seed) {
  Probe probe(f, inputs, parameters, seed);
  const std::vector<Tensor> gradients = probe.gradients();
  return taylor(name, probe, gradients, seed);
}

TaylorReport taylor(const std::string& name, Probe& probe, const std::vector<Tensor>& gradients, uint64_t seed) {
  TaylorReport report;
  report.name = name;
  std::vector<Tensor> x;
  double length = 0;
  for (const auto& target : probe.targets) x.push_back(target.value), length += static_cast<double>(target.value.elements());
  const Line line(probe, x, random_key(seed, "taylor direction"));
  const double here = line(0), slope = line.dot(gradients);
  // The direction has length sqrt(elements): a step moves the point by 0.05 at first.
  double h = 0.05 / std::sqrt(std::max(1.0, length));
  double floor = 0;
  for (int k = 0; k < 12; ++k, h /= 2) {
    const double there = line(h);
    report.steps.push_back(h);
    report.remainders.push_back(std::abs(there - here - h * slope));
    floor = std::max(floor, 1e-14 * (std::abs(there) + std::abs(here)));
  }
  floor = std::max(floor, 1e-14 * std::abs(report.steps[0] * slope)) * 30;
  const auto& r = report.remainders;
  if (std::isnan(here) || std::isnan(slope)) return report;
  report.linear = r[0] <= floor;
  for (size_t k = 0; k + 1 < r.size() && r[k + 1] > floor; ++k) report.slopes.push_back(std::log2(r[k] / r[k + 1]));
  if (report.slopes.size() < 3) {
    report.linear |= report.slopes.empty() && r[1] <= floor;
    report.least = report.slopes.empty() ? 0 : *std::min_element(report.slopes.begin(), report.slopes.end());
    return report;
  }
  std::vector<double> last(report.slopes.end() - 3, report.slopes.end());
  std::sort(last.begin(), last.end());
  report.least = last[1];
  return report;
}

}  // namespace bonsai
