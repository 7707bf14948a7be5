// Gradient check: in float64, every gradient against central differences of sum(y * c), c random. A
// random c matters: the plain sum of a softmax or a layer norm has gradient 0 whatever backward says.
//
//   GradcheckReport report = gradcheck("my layer", f, {x}, layer.parameters());
//   if (!report.passed()) puts(report.text().c_str());
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "framework/core/parameter.h"
#include "framework/core/tensor.h"

namespace bonsai {

struct GradcheckOptions {
  double tolerance = 1e-6;  // of |a - n| / max(1e-3, |a|, |n|)
  double step = 1e-3;       // of the five-point difference, whose error falls with step^4
  int64_t samples = 0;      // elements checked of each tensor, chosen at random; 0 checks all
  uint64_t seed = 1;
};

// One input or parameter, with its worst element.
struct GradcheckTensor {
  std::string name;  // "input 0", "block.0.attention.query.weight"
  std::string op;    // the op that reads it
  std::string shape;
  int64_t elements = 0, checked = 0;
  std::string index;  // of the worst element, "(2,0)"
  double analytic = 0, numeric = 0, error = 0;
  bool all_zero = false;
};

struct GradcheckReport {
  std::string name;
  double tolerance = 0;
  std::vector<GradcheckTensor> tensors;
  std::set<std::string> ops, layers;
  std::vector<std::string> unreached;  // ops that were recorded and got no gradient

  int64_t elements_checked() const;
  bool passed() const;
  // A line of counts, then a line for each failure, worst first.
  std::string text() const;
};

// f must give the same floating y for the same inputs (draw dropout from a fixed key). All floating
// inputs and all parameters must be f64; i32 inputs are passed through.
using DifferentiableFunction = std::function<Tensor(const std::vector<Tensor>&)>;
GradcheckReport gradcheck(const std::string& name, const DifferentiableFunction& f,
                          const std::vector<Tensor>& inputs,
                          const std::vector<Parameter*>& parameters = {},
                          const GradcheckOptions& options = {});

}  // namespace bonsai
