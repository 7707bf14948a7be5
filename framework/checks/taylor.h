// Taylor test: with the right gradient g the remainder |f(x + h v) - f(x) - h <g, v>| is of second order, so
// it falls with slope 2 (or more) as h halves; a wrong one leaves a first-order rest, of slope 1.
// Farrell et al. 2013, arXiv:1204.5577
#pragma once

#include "bonsai/framework/checks/probe.h"

namespace bonsai {

// One direction.
struct TaylorLine {
  std::string along;           // "all tensors", or the name of one
  std::vector<double> slopes;  // log2 of one remainder over the next, while they are above rounding
  bool linear = false;         // the remainder is rounding from the first step on
  double slope = 0;             // of f along the direction, by the gradient
  double least = 0;            // the slope that counts: the median of the last three
  static constexpr double kMin = 1.9;
  bool settled = false;         // to first order nothing is left, though the slopes end before they show it
  bool passed() const { return linear || settled || least >= kMin; }
};

struct TaylorReport {
  std::string name;
  std::vector<TaylorLine> lines;
  bool passed() const;
  std::string text()
      const;  // the slopes along all tensors at once; then the tensors that failed, at most six lines in all
};

// Along random directions: through all floating inputs and all parameters at once, then through each alone.
TaylorReport taylor(const std::string& name, const DifferentiableFunction& f,
                    const std::vector<Tensor>& inputs, const std::vector<Parameter*>& parameters = {},
                    uint64_t seed = 1);
// The same for gradients that came from elsewhere.
TaylorReport taylor(const std::string& name, Probe& probe, const std::vector<Tensor>& gradients,
                    uint64_t seed = 1);

}  // namespace bonsai
