// The first op that made a value that is not finite, forward or backward, while this watches:
//
//   NonfiniteTrace trace;
//   const ScopedWatcher watch(trace);
//   ... a forward and a backward pass ...
//   if (trace.found()) puts(trace.text().c_str());
//
// An op that passes on what it was given is not named: NaN counts where no input is NaN, infinity where all
// inputs are finite.
#pragma once

#include <string>

#include "bonsai/framework/autograd/watch.h"

namespace bonsai {

class NonfiniteTrace final : public OpWatcher {
 public:
  bool found() const { return !text_.empty(); }
  // "[exp] in block.0.mlp made inf of f32(2,8,64) from -3.1 to 104.2", and what it is where that is a
  // gradient.
  const std::string& text() const { return text_; }

  void result(const char* op, std::span<const TensorRef> inputs, const Tensor& y) override;
  void upstream(const char* op, size_t node, const Tensor& dy, const std::vector<Tensor>& saved) override;
  void gradient(const char* op, size_t node, size_t input, Tensor& gradient) override;
  void done() override { backward_of_ = nullptr; }

 private:
  std::string text_;
  bool nan_above_ = false, finite_above_ = true;
  const char* backward_of_ = nullptr;  // the op whose backward runs
  std::string above_;  // the ranges of the gradient that the op got and of what it kept
};

}  // namespace bonsai
