// Finds the first op, forward or backward, whose result is not finite:
//
//   NonfiniteTrace trace;
//   const ScopedWatcher watch(trace);
//   ... a forward and a backward pass ...
//   if (trace.found()) puts(trace.text().c_str());
//
// An op that only passes on such a value is not reported: NaN counts if no input is NaN, and infinity counts
// if all inputs are finite.
#pragma once

#include <string>

#include "bonsai/framework/autograd/watch.h"

namespace bonsai {

class NonfiniteTrace final : public OpWatcher {
 public:
  bool found() const { return !text_.empty(); }
  // "[exp] in block.0.mlp made inf of f32(2,8,64) from -3.1 to 104.2"; for a backward function also which
  // gradient it is. Empty if nothing was found.
  const std::string& text() const { return text_; }

  void result(const char* op, std::span<const TensorRef> inputs, const Tensor& y) override;
  void upstream(const char* op, size_t node, const Tensor& dy, const std::vector<Tensor>& saved) override;
  void gradient(const char* op, size_t node, size_t input, Tensor& gradient) override;
  void done() override { backward_of_ = nullptr; }

 private:
  std::string text_;
  bool nan_above_ = false, finite_above_ = true;
  const char* backward_of_ = nullptr;  // the op whose backward function runs
  std::string above_;                  // ranges of the gradient that it got and of its saved tensors
};

}  // namespace bonsai
