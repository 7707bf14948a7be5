// Gradient check: in float64, every gradient against differences along single elements and along random
// directions.
//
//   GradcheckReport report = gradcheck("my layer", f, {x}, layer.parameters());
//   if (!report.passed()) puts(report.text().c_str());
#pragma once

#include <set>

#include "bonsai/framework/checks/probe.h"

namespace bonsai {

struct GradcheckOptions {
  double tolerance = 1e-6;  // of gradcheck_error
  // The step of an element, or of the spread along a direction; a failing line is tried with others.
  double step = 1e-3;
  int64_t in_full = 4096;        // a tensor of up to so many elements is checked in each of them
  int64_t input_in_full = 4096;  // the same of an input
  int64_t samples = 256;         // of a larger one so many are, chosen at random,
  int64_t directions = 4;        // and so many random directions
  bool to_first_failure = false; // enough for who asks only whether there is one
  uint64_t seed = 1;
};

// |a - n| / max(1e-3, |a|, |n|), infinite for NaN.
double gradcheck_error(double analytic, double numeric);

// What a failing gradient is, told from its error at step after step.
enum class GradcheckFailure {
  none,
  wrong,             // the differences settle on another value
  not_finite,        // the gradient or a difference is not a number
  float_noise,       // they never settle, but scatter around the gradient: f rounds to less than f64
  kink,              // the slopes to the left and to the right settle on different values
  not_deterministic  // the same inputs gave two results
};

// One step of the error-against-step curve of a failure.
struct CurvePoint {
  double step, error;
};

// One input or parameter, with its worst line.
struct GradcheckTensor {
  std::string name;
  std::string op;  // the op that reads it; empty: none does
  std::string shape;
  int64_t elements = 0, checked = 0, directions = 0;
  // Elements and directions that agree only with another step: curvature, a kink or rounding.
  int64_t other_step = 0;
  std::string place;       // of the worst: "at (2,0)", "along a random direction"
  double analytic = 0, numeric = 0, error = 0;
  bool all_zero = false;   // the gradient and its differences: they agree, but prove nothing
  GradcheckFailure fault = GradcheckFailure::none;
  std::vector<CurvePoint> curve;  // of a failure
};

struct GradcheckReport {
  std::string name;
  double tolerance = 0;
  std::vector<GradcheckTensor> tensors;
  std::set<std::string> ops, layers;
  std::vector<std::string> unreached;  // ops that were recorded and got no gradient
  std::string not_deterministic;       // what differed, where something did

  // Elements of all tensors, and those that were checked one by one.
  int64_t elements() const;
  int64_t elements_checked() const;
  // Nothing is wrong, but all gradients and differences are zero, or there are none.
  bool proves_nothing() const;
  bool passed() const;          // false too where nothing is proven
  // A line of counts; then what is wrong, worst first, in at most 14 lines.
  std::string text() const;

 private:
  bool nothing_wrong() const;
};

// The parameters of `in_directions` are checked along random directions alone: those that a check of
// their own layer goes through one by one.
GradcheckReport gradcheck(const std::string& name, const DifferentiableFunction& f,
                          const std::vector<Tensor>& inputs, const std::vector<Parameter*>& parameters = {},
                          const GradcheckOptions& options = {},
                          const std::vector<Parameter*>& in_directions = {});

// The same for gradients that came from elsewhere, of the probe's targets; the last `in_directions` of these
// are checked along directions alone.
GradcheckReport gradcheck(const std::string& name, Probe& probe, const std::vector<Tensor>& gradients,
                          const GradcheckOptions& options = {}, size_t in_directions = 0);

}  // namespace bonsai
