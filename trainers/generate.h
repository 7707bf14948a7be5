// Text from a model, one token after the other.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "bonsai/layers/model/model.h"
#include "bonsai/trainers/poll.h"

namespace bonsai {

struct GenerateOptions {
  double temperature = 1;  // 0: always the most likely token, the lowest id of equals
  int64_t top_k = 0;       // only the k most likely tokens; 0 or more than there are: all
  double top_p =
      1;  // only the most likely tokens that together have this share, the one that reaches it included.
          // Holtzman et al. 2020, arXiv:1904.09751
  double min_p =
      // Only tokens with at least this share of the most likely one's. Nguyen et al. 2024, arXiv:2407.01082.
      0;
  uint64_t seed = 1;
};

// One token by its logits; probabilities are those at the temperature, and each limit holds after the one
// before. `index` counts the draws of a seed.
int32_t choose_token(std::span<const double> logits, const GenerateOptions& options, uint64_t index);

// The ids and `count` more. The model sees the last block_size of them: up to there through a cache, a token
// a pass; beyond, where every token's position moves with each new one, and where a layer is not
// position-wise (Model::cacheable), through the whole window. With a source, which an encoder reads
// once. `go_on` hears each new token and says whether another shall follow.
std::vector<int32_t> generate(Model& model, std::vector<int32_t> ids, int64_t count,
                              const GenerateOptions& options, const std::function<bool(int32_t)>& go_on = {},
                              const Source& source = {}, const Poll& poll = kNoPoll);

// The most likely tokens after each row (B,T) of a batch, (B,count), each chosen after those before it. T is
// at least 1, and T + count - 1, the tokens that the model reads, at most block_size.
std::vector<std::vector<int32_t>> greedy(Model& model, const Tensor& ids, int64_t count,
                                         const Source& source = {}, const Poll& poll = kNoPoll);

}  // namespace bonsai
