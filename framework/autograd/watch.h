// An observer of every op that runs on this thread, forward and backward. Used by the tracer of non-finite
// values, the mutants that the gradient check must catch, and the profile.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "bonsai/framework/core/tensor.h"

namespace bonsai {

using TensorRef = std::reference_wrapper<const Tensor>;

// During each call, PathScope::current() names the layer.
class OpWatcher {
 public:
  virtual ~OpWatcher() = default;
  virtual void result(const char* /*op*/, std::span<const TensorRef> /*inputs*/, const Tensor& /*y*/) {}
  // The backward function of the tape's node `node` is about to run, with the tensors it saved. Ops that it
  // calls report their results, too.
  virtual void upstream(const char* /*op*/, size_t /*node*/, const Tensor& /*dy*/,
                        const std::vector<Tensor>& /*saved*/) {}
  // The gradient it computed for an input or, if the op wrote into a running gradient, the running gradient.
  virtual void gradient(const char* /*op*/, size_t /*node*/, size_t /*input*/, Tensor& /*gradient*/) {}
  virtual void done() {}  // this node's backward function is done
  virtual void part(const char* /*name*/) {}  // a training step enters this part

  // True if the watcher replaces gradients. It then gets each gradient separately from running sums, and
  // replaces it by assigning another tensor, because the given one may share its elements.
  virtual bool replaces() const { return false; }

  static OpWatcher* active();  // null if there is none
};

// Tells the watcher, if there is one, that the training step enters this part.
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
