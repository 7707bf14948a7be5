// Who looks at every op of this thread while it runs, forward and backward: the tracer of values that
// are not finite, and the mutants that the gradient check must catch.
#pragma once

#include <functional>
#include <span>

#include "framework/core/tensor.h"

namespace bonsai {

using TensorRef = std::reference_wrapper<const Tensor>;

// PathScope::current() names the layer in each of these.
class OpWatcher {
 public:
  virtual ~OpWatcher() = default;
  virtual void result(const char* /*op*/, std::span<const TensorRef> /*inputs*/, const Tensor& /*y*/) {}
  // Backward of node number `node` of the tape is about to run.
  virtual void upstream(const char* /*op*/, size_t /*node*/, const Tensor& /*dy*/) {}
  // What it gave for an input. A watcher may put another tensor there, but not write into this one.
  virtual void gradient(const char* /*op*/, size_t /*node*/, size_t /*input*/, Tensor& /*gradient*/) {}

  static OpWatcher* active();  // null: nobody watches
};

class ScopedWatcher {
 public:
  explicit ScopedWatcher(OpWatcher& watcher);
  ~ScopedWatcher();
  ScopedWatcher(const ScopedWatcher&) = delete;
  ScopedWatcher& operator=(const ScopedWatcher&) = delete;

 private:
  OpWatcher* previous_;
};

}  // namespace bonsai
