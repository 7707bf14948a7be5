// Taylor test: with the right gradient g, the remainder |f(x + h v) - f(x) - h <g, v>| is of second order, so
// its log2 falls by 2 or more when h is halved. With a wrong gradient it is of first order and falls by 1.
// Farrell et al. 2013, arXiv:1204.5577
#pragma once

#include "bonsai/framework/checks/probe.h"

namespace bonsai {

// The result along one direction.
struct TaylorLine {
  std::string along;           // "all tensors", or the name of one
  std::vector<double> slopes;  // log2 of each remainder over the next, while above the rounding error
  bool linear = false;         // the remainder is within the rounding error from the first step on
  double slope = 0;            // <g, v>: the derivative along the direction according to the gradient
  double least = 0;            // the median of the last three slopes, which must be at least kMin
  static constexpr double kMin = 1.9;
  bool settled = false;  // the extrapolated first-order remainder is 0, although `least` is below kMin
  bool passed() const { return linear || settled || least >= kMin; }
};

struct TaylorReport {
  std::string name;
  std::vector<TaylorLine> lines;
  bool passed() const;
  // The slopes along all tensors at once, then the tensors that failed; at most six lines.
  std::string text() const;
};

// Tests f along one random direction through all floating inputs and parameters, then along one through each.
TaylorReport taylor(const std::string& name, const DifferentiableFunction& f,
                    const std::vector<Tensor>& inputs, const std::vector<Parameter*>& parameters = {},
                    uint64_t seed = 1);
// Tests given gradients of the probe's targets.
TaylorReport taylor(const std::string& name, Probe& probe, const std::vector<Tensor>& gradients,
                    uint64_t seed = 1);

}  // namespace bonsai
