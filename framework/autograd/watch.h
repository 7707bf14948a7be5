// Who looks at every op of this thread while it runs, forward and backward: the tracer of values that
// are not finite, the mutants that the gradient check must catch, the profile.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "bonsai/framework/core/tensor.h"

namespace bonsai {

using TensorRef = std::reference_wrapper<const Tensor>;

// PathScope::current() names the layer in each of these.
class OpWatcher {
 public:
  virtual ~OpWatcher() = default;
  virtual void result(const char* /*op*/, std::span<const TensorRef> /*inputs*/, const Tensor& /*y*/) {}
  // Backward of node number `node` of the tape is about to run, with what it kept; ops that it calls give results too.
  virtual void upstream(const char* /*op*/, size_t /*node*/, const Tensor& /*dy*/, const std::vector<Tensor>& /*saved*/) {}
  // What it gave for an input: the gradient, or where the op adds to a running one, that.
  virtual void gradient(const char* /*op*/, size_t /*node*/, size_t /*input*/, Tensor& /*gradient*/) {}
  virtual void done() {}  // backward of this node
  virtual void part(const char* /*name*/) {}  // a training step goes on to this part of its work

  // Who replaces gradients (puts another tensor there; this one may be shared) gets each apart from running sums.
  virtual bool replaces() const { return false; }

  static OpWatcher* active();  // null: nobody watches
};

inline void mark_part(const char* name) {
  if (OpWatcher* watcher = OpWatcher::active()) watcher->part(name);
}

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
