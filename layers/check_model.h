// Gradient check of a whole model: first the model along random directions, then each layer element by
// element, on the inputs of its first call.
#pragma once

#include "bonsai/framework/checks/gradcheck.h"
#include "bonsai/framework/checks/taylor.h"
#include "bonsai/layers/module.h"

namespace bonsai {

struct ModelCheck {
  std::vector<GradcheckReport> reports;          // one for the model, then one per layer
  TaylorReport taylor;                           // for the whole model
  std::vector<std::string> in_directions_alone;  // parameters whose layer was never called by itself
  bool passed() const;
  std::string text() const;  // summary: what was checked in total
};

struct ModelCheckOptions {
  GradcheckOptions gradcheck = {};
  std::string layer = {};                                 // if set, checks only this layer and its children
  std::function<void(const std::string&)> progress = {};  // called with the text of each finished report
};

// The model must be f64; x is its input. Every pass uses a copy of the context, so dropout draws the same
// numbers each time.
ModelCheck check_model(const std::string& name, Layer& model, const Tensor& x, const Context& context,
                       const ModelCheckOptions& options = {});

}  // namespace bonsai
