// Keys and values of the tokens that a model has seen, so that the next token costs one position, not all:
//
//   KeyValueCache cache(block_size);
//   Context context{.first_position = cache.length(), .cache = &cache};
//   model(next_ids, context);   // attends to all that was cached, and adds its own
//
// Keys are stored as attention uses them: normalised and turned by their position.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>

#include "bonsai/framework/core/tensor.h"

namespace bonsai {

class KeyValueCache {
 public:
  explicit KeyValueCache(int64_t capacity) : capacity_(capacity) {}

  int64_t length() const;  // tokens that every layer has
  int64_t length(const std::string& path) const;  // that this layer has
  void clear();            // forgets all tokens and all sources; the memory of the tokens stays

  // What the layer of this path has of a source, which does not grow: made once, kept until clear(). Not
  // under a tape.
  std::pair<Tensor, Tensor> source(const std::string& path,
                                   const std::function<std::pair<Tensor, Tensor>()>& make);

  // What the layer of this path has, with these (B,T,width) at the end. Not under a tape: a later change of
  // the cache would spoil what the tape keeps. More tokens than the capacity are an Error.
  std::pair<Tensor, Tensor> append(const std::string& path, const Tensor& keys, const Tensor& values);

 private:
  struct Entry {
    Tensor keys, values;  // (B,capacity,width)
    int64_t length = 0;
  };
  int64_t capacity_;
  std::map<std::string, Entry> entries_;
  std::map<std::string, std::pair<Tensor, Tensor>> sources_;
};

}  // namespace bonsai
