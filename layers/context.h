// Settings and further inputs of a forward pass. A copy made before a pass replays it.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "bonsai/framework/core/rng.h"
#include "bonsai/framework/core/tensor.h"

namespace bonsai {

class KeyValueCache;
class Module;
struct Context;

// `called` is invoked before a layer runs, with its arguments and a function that calls the layer again.
class LayerWatcher {
 public:
  using Call = std::function<Tensor(const std::vector<Tensor>& inputs, Context& context)>;
  virtual ~LayerWatcher() = default;
  virtual void called(Module& layer, const std::vector<Tensor>& inputs, const Context& context,
                      const Call& call) = 0;
};

// The source sequence of an encoder-decoder, which the decoder reads by cross-attention.
struct Source {
  Tensor ids = {};           // i32 (B,S): input of the encoder
  Tensor features = {};      // (B,S,C): output of the encoder
  Tensor padding_mask = {};  // i32 (B,S): 1 for tokens, 0 for padding
  Tensor segment_ids = {};   // i32 (B,S): a token of the decoder attends only to its own segment
};

struct Context {
  bool training = false;       // dropout is active
  int64_t first_position = 0;  // position of the first input token in its sequence
  RandomStream random = {};    // random numbers of dropout
  Tensor padding_mask = {};    // i32 (B,Tk), cached keys included: 1 for tokens, 0 for padding; or undefined
  Tensor segment_ids = {};     // i32 (B,Tk): a token attends only to its own segment; undefined: to all
  Source source = {};
  double attention_scale = 1;  // multiplies the scale of every attention; the audit increases it
  LayerWatcher* watcher = nullptr;
  // If set, attention stores its weights (B,H,Tq,Tk) here, by the path of the layer.
  std::map<std::string, Tensor>* weights = nullptr;
  // If set, keys and values of the tokens before first_position; attention appends the new ones.
  KeyValueCache* cache = nullptr;
};

}  // namespace bonsai
