// Taylor test: with the right gradient g the remainder |f(x + h v) - f(x) - h <g, v>| is of second order, so
// it falls with slope 2 (or more) as h halves; a wrong one leaves a first-order rest, of slope 1.
// Rognes & Farrell, dolfin-adjoint.
#pragma once

#include "framework/checks/probe.h"

namespace bonsai {

struct TaylorReport {
  std::string name;
  std::vector<double> steps, remainders;
  std::vector<double> slopes;   // log2 of one remainder over the next, where both are above rounding
  bool linear = false;          // the remainder is rounding from the first step on
  double least = 0;             // the slope that counts: the median of the last three
  bool passed() const { return linear || least >= kLeast; }
  std::string text() const;     // one line
  static constexpr double kLeast = 1.9;
};

// Along one random direction through all floating inputs and all parameters at once.
TaylorReport taylor(const std::string& name, const DifferentiableFunction& f, const std::vector<Tensor>& inputs,
                    const std::vector<Parameter*>& parameters = {}, uint64_t seed = 1);
// The same for gradients that came from elsewhere.
TaylorReport taylor(const std::string& name, Probe& probe, const std::vector<Tensor>& gradients, uint64_t seed = 1);

}  // namespace bonsai
