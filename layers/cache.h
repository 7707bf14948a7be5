// Keys and values of previous tokens, so that a forward pass in generation computes only the new positions:
//
//   KeyValueCache cache(block_size);
//   Context context{.first_position = cache.length(), .cache = &cache};
//   model(next_ids, context);   // attends to all cached tokens and appends the new ones
//
// Keys are stored after QK-norm and rotary position embedding.
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

  int64_t length() const;                         // number of tokens cached by every layer
  int64_t length(const std::string& path) const;  // number of tokens cached by the layer with this path
  void clear();  // removes all tokens and sources; keeps the memory of the tokens

  // Returns the keys and values of the source for the layer with this path. `make` is called the first time;
  // the result is kept until clear(). Throws Error while a tape records.
  std::pair<Tensor, Tensor> source(const std::string& path,
                                   const std::function<std::pair<Tensor, Tensor>()>& make);

  // Appends keys and values (B,T,width) of the layer with this path and returns all that it has. Throws Error
  // if the capacity is exceeded, and while a tape records: later changes would overwrite saved tensors.
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
