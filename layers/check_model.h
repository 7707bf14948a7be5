// Gradient checks of a whole model: all of it along random directions, then each layer alone, on the inputs
// it had when the model first called it, element by element.
#pragma once

#include "bonsai/framework/checks/gradcheck.h"
#include "bonsai/framework/checks/taylor.h"
#include "bonsai/layers/module.h"

namespace bonsai {

struct ModelCheck {
  std::vector<GradcheckReport> reports;          // the model's, then one a layer
  TaylorReport taylor;                           // of the whole model
  std::vector<std::string> in_directions_alone;  // parameters of no layer that was called
  bool passed() const;
  std::string text() const;  // the last line: what was checked in all
};

struct ModelCheckOptions {
  GradcheckOptions gradcheck = {};
  std::string layer = {};                                 // only the layer of this path and those in it
  std::function<void(const std::string&)> progress = {};  // gets the text of each report as it is there
};

// The model must be f64. x is its input; the context is copied for every pass, so dropout draws the same
// numbers.
ModelCheck check_model(const std::string& name, Layer& model, const Tensor& x, const Context& context,
                       const ModelCheckOptions& options = {});

}  // namespace bonsai
