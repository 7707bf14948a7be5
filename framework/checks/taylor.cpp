#include "bonsai/framework/checks/taylor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace bonsai {
namespace {

constexpr int kHalvings = 12;

// Tests one side of the point along the line: `side` is 1 or -1.
TaylorLine along_side(const std::string& along, const Line& line, double slope, int64_t elements,
                      double side) {
  TaylorLine result{.along = along, .slopes = {}, .slope = slope};
  // v has a length of about sqrt(elements), so the first step moves the point by about 0.05.
  double h = side * 0.05 / std::sqrt(std::max(1.0, static_cast<double>(elements)));
  const double here = line(0);
  std::vector<double> steps, rests;
  double rounding = 1e-14 * std::abs(h * slope);
  for (int k = 0; k < kHalvings; ++k, h /= 2) {
    const double there = line(h);
    steps.push_back(h), rests.push_back(there - here - h * slope);
    rounding = std::max(rounding, 1e-14 * (std::abs(there) + std::abs(here)));
  }
  if (std::isnan(here) || std::isnan(slope)) return result;
  const double floor = 30 * rounding;  // remainders above it have enough digits for a slope
  size_t usable = 0;
  while (usable < rests.size() && std::abs(rests[usable]) > floor) ++usable;
  result.linear = usable < 2;
  for (size_t k = 0; k + 1 < usable; ++k)
    result.slopes.push_back(std::log2(std::abs(rests[k] / rests[k + 1])));
  if (result.linear) return result;
  const auto last = static_cast<int64_t>(std::min<size_t>(3, result.slopes.size()));
  std::vector<double> end(result.slopes.end() - last, result.slopes.end());
  std::sort(end.begin(), end.end());
  result.least = end[(end.size() - 1) / 2];
  // Rounding or third-order terms may keep the slopes from converging. The remainder over h, extrapolated to
  // h = 0, is the error of <g, v> itself.
  const auto over_h = [&](size_t k) { return rests[k] / steps[k]; };
  const size_t n = usable - 1;
  const double once = 2 * over_h(n) - over_h(n - 1);
  const double limit = n >= 2 ? (4 * once - (2 * over_h(n - 1) - over_h(n - 2))) / 3 : once;
  result.settled = std::abs(limit) <= 1e-4 * std::abs(slope) + floor / std::abs(steps[n]);
  return result;
}

// A kink affects one side of the point, a wrong gradient both. The line passes if either side does.
TaylorLine along_line(const std::string& along, const Line& line, double slope, int64_t elements) {
  const TaylorLine forward = along_side(along, line, slope, elements, 1);
  return forward.passed() ? forward : along_side(along, line, slope, elements, -1);
}

}  // namespace

bool TaylorReport::passed() const {
  return !lines.empty() &&
         std::all_of(lines.begin(), lines.end(), [](const TaylorLine& l) { return l.passed(); }) &&
         lines[0].slope != 0;  // a gradient of zero proves nothing
}

std::string TaylorReport::text() const {
  std::string out = fmt::format("taylor {}: {}", name, passed() ? "passed" : "FAILED");
  const auto slopes = [](const TaylorLine& line) {
    if (line.linear) return std::string(" linear, no remainder but rounding");
    std::string text;
    for (const double s : line.slopes) text += fmt::format(" {:.2f}", s);
    return text;
  };
  if (!lines.empty())
    out += fmt::format(", slopes along {} as h halves:{}\n", lines[0].along, slopes(lines[0]));
  int shown = 0;
  for (size_t i = 1; i < lines.size(); ++i)
    if (!lines[i].passed() && ++shown <= 4)
      out += fmt::format("  along {} the slope is {:.2f} (at least {}):{}\n", lines[i].along, lines[i].least,
                         TaylorLine::kMin, slopes(lines[i]));
  if (shown > 4) out += fmt::format("  and along {} more\n", shown - 4);
  return out;
}

TaylorReport taylor(const std::string& name, const DifferentiableFunction& f,
                    const std::vector<Tensor>& inputs, const std::vector<Parameter*>& parameters,
                    uint64_t seed) {
  Probe probe(f, inputs, parameters, seed);
  const std::vector<Tensor> gradients = probe.gradients();
  return taylor(name, probe, gradients, seed);
}

TaylorReport taylor(const std::string& name, Probe& probe, const std::vector<Tensor>& gradients,
                    uint64_t seed) {
  TaylorReport report;
  report.name = name;
  std::vector<Tensor> x;
  int64_t elements = 0;
  for (const auto& target : probe.targets) x.push_back(target.value), elements += target.value.elements();
  {
    const Line line(probe, x, random_key(seed, "taylor direction"));
    report.lines.push_back(along_line("all tensors", line, line.dot(gradients), elements));
  }
  for (size_t i = 0; x.size() > 1 && i < x.size(); ++i) {
    const Line line(probe, {x[i]}, random_key(seed, "taylor direction " + probe.targets[i].name));
    report.lines.push_back(
        along_line(probe.targets[i].name, line, line.dot({gradients[i]}), x[i].elements()));
  }
  return report;
}

}  // namespace bonsai
