// What a forward pass is told beside its input: small, copied to replay a pass.
#pragma once

#include "framework/core/rng.h"
#include "framework/core/tensor.h"

namespace bonsai {

class Layer;
struct Context;

// Hears of every layer that is called, before it runs.
class LayerWatcher {
 public:
  virtual ~LayerWatcher() = default;
  virtual void called(Layer& layer, const Tensor& x, const Context& context) = 0;
};

struct Context {
  bool training = false;       // dropout is active
  int64_t first_position = 0;  // of the first token in the sequence
  RandomStream random = {};    // dropout draws from it
  Tensor attend = {};          // i32 (B,T): no query attends to a key that is 0 here (padding); undefined: to all
  double attention_scale = 1;  // times the scale of every attention: the leak audit turns it up
  LayerWatcher* watcher = nullptr;
};

}  // namespace bonsai
