// Text from a model, one token after the other.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "layers/decoder.h"

namespace bonsai {

struct GenerateOptions {
  double temperature = 1;  // 0: always the most likely token, the lowest id of equals
  int64_t top_k = 0;       // only the k most likely tokens; 0 or more than there are: all
  uint64_t seed = 1;
};

// One token by its logits. `index` counts the draws of a seed.
int32_t choose_token(std::span<const double> logits, const GenerateOptions& options, uint64_t index);

// The ids and `count` more. The model sees the last block_size of them.
std::vector<int32_t> generate(Decoder& model, std::vector<int32_t> ids, int64_t count, const GenerateOptions& options,
                              const std::function<bool(int32_t)>& go_on = {});

}  // namespace bonsai
