// Gradient check: compares every gradient with finite differences in f64, along single elements and along
// random directions.
//
//   GradcheckReport report = gradcheck("my layer", f, {x}, layer.parameters());
//   if (!report.passed()) puts(report.text().c_str());
#pragma once

#include <set>

#include "bonsai/framework/checks/probe.h"

namespace bonsai {

struct GradcheckOptions {
  double tolerance = 1e-6;  // largest accepted gradcheck_error
  // Difference step relative to the element, or along a direction to the spread of the tensor. A line that
  // fails is repeated with other steps.
  double step = 1e-3;
  int64_t in_full = 4096;         // parameters with at most this many elements are checked element by element
  int64_t input_in_full = 4096;   // the same limit for inputs
  int64_t samples = 256;          // number of random elements checked in a larger tensor
  int64_t directions = 4;         // number of random directions checked in a larger tensor
  bool to_first_failure = false;  // stop at the first failure
  uint64_t seed = 1;
};

// |a - n| / max(1e-3, |a|, |n|), infinite for NaN.
double gradcheck_error(double analytic, double numeric);

// The kind of a failure, found from its errors at several difference steps.
enum class GradcheckFailure {
  none,
  wrong,             // the differences converge to another value
  not_finite,        // the gradient or a difference is NaN or infinite
  float_noise,       // the differences do not converge: f computes in less than f64
  kink,              // the slopes to the left and to the right converge to different values
  not_deterministic  // the same inputs gave two results
};

// One step of the error-against-step curve of a failure.
struct CurvePoint {
  double step, error;
};

// The result for one input or parameter, with its largest error.
struct GradcheckTensor {
  std::string name;
  std::string op;  // the first op that reads it; empty if no op does
  std::string shape;
  int64_t elements = 0, checked = 0, directions = 0;
  // Elements and directions that agree only with another step, because of curvature, a kink or rounding.
  int64_t other_step = 0;
  std::string place;  // of the largest error: "at (2,0)", "along a random direction"
  double analytic = 0, numeric = 0, error = 0;
  bool all_zero = false;  // the gradient and its differences are all zero: they agree, but prove nothing
  GradcheckFailure fault = GradcheckFailure::none;
  std::vector<CurvePoint> curve;  // empty unless the check failed
};

struct GradcheckReport {
  std::string name;
  double tolerance = 0;
  std::vector<GradcheckTensor> tensors;
  std::set<std::string> ops, layers;
  std::vector<std::string> unreached;  // recorded ops that got no gradient
  std::string not_deterministic;       // what differed between two runs; empty if nothing did

  int64_t elements() const;          // of all tensors
  int64_t elements_checked() const;  // those that were checked one by one
  // True if nothing is wrong, but all gradients and differences are zero or there are none.
  bool proves_nothing() const;
  bool passed() const;  // false also if proves_nothing()
  // A line of counts, then the failures, largest error first; at most 14 lines.
  std::string text() const;

 private:
  bool nothing_wrong() const;
};

// Checks f at the given inputs and parameters. The parameters of `in_directions` are checked only along
// random directions, which suffices if a check of their own layer covers their elements.
GradcheckReport gradcheck(const std::string& name, const DifferentiableFunction& f,
                          const std::vector<Tensor>& inputs, const std::vector<Parameter*>& parameters = {},
                          const GradcheckOptions& options = {},
                          const std::vector<Parameter*>& in_directions = {});

// Checks given gradients of the probe's targets. The last `in_directions` targets are checked only along
// random directions.
GradcheckReport gradcheck(const std::string& name, Probe& probe, const std::vector<Tensor>& gradients,
                          const GradcheckOptions& options = {}, size_t in_directions = 0);

}  // namespace bonsai
