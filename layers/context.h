// What a forward pass is told beside its input: small, copied to replay a pass.
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

// Hears of every layer that is called, before it runs, and how to call it again.
class LayerWatcher {
 public:
  using Call = std::function<Tensor(const std::vector<Tensor>& inputs, Context& context)>;
  virtual ~LayerWatcher() = default;
  virtual void called(Module& layer, const std::vector<Tensor>& inputs, const Context& context,
                      const Call& call) = 0;
};

// What a decoder attends to beside its own tokens: cross-attention.
struct Source {
  Tensor ids = {};        // i32 (B,S): what the encoder reads
  Tensor features = {};   // (B,S,C): what it made of them
  Tensor padding_mask = {};     // i32 (B,S): 0 where a token is padding
  Tensor segment_ids = {};  // i32 (B,S): a token of the decoder attends to those of its own document
};

struct Context {
  bool training = false;       // dropout is active
  int64_t first_position = 0;  // of the first token in the sequence
  RandomStream random = {};    // dropout draws from it
  // i32 (B,Tk), cached keys included: no query attends to a key that is 0 here (padding).
  Tensor padding_mask = {};
  Tensor segment_ids = {};  // i32 (B,Tk): a token attends to those of its own document. Undefined: to all
  Source source = {};     // of an encoder-decoder
  double attention_scale = 1;  // times the scale of every attention: the leak audit turns it up
  LayerWatcher* watcher = nullptr;
  std::map<std::string, Tensor>* weights =
      nullptr;  // where given, attention puts its weights (B,H,Tq,Tk) there, by its path
  KeyValueCache* cache =
      nullptr;  // keys and values of the tokens before first_position; the new ones are appended
};

}  // namespace bonsai
