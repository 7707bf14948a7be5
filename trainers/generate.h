// Generates text with a model, token by token.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "bonsai/layers/model/model.h"
#include "bonsai/trainers/poll.h"

namespace bonsai {

struct GenerateOptions {
  double temperature = 1;  // 0 chooses the most likely token; among equal ones, the lowest id
  int64_t top_k = 0;       // keeps only the k most likely tokens; 0 keeps all
  // Keeps the smallest set of most likely tokens with at least this total probability.
  double top_p = 1;  // Holtzman et al. 2020, arXiv:1904.09751
  // Keeps tokens with at least this fraction of the highest probability.
  double min_p = 0;  // Nguyen et al. 2024, arXiv:2407.01082
  uint64_t seed = 1;
};

// Draws one token from logits (V). Probabilities are computed at the temperature; top_k, top_p and min_p
// apply in this order. `index` is the index of the draw for the seed.
int32_t choose_token(std::span<const double> logits, const GenerateOptions& options, uint64_t index);

// Returns the ids followed by up to `count` new tokens. The model reads the last block_size ids. Up to
// block_size ids, a pass computes only the new token with a key/value cache. Beyond block_size, where each
// new token shifts all positions, and if the model is not cacheable, a pass computes the whole window. An
// encoder reads the source once. Generation stops when `go_on`, called with each new token, returns false.
std::vector<int32_t> generate(Model& model, std::vector<int32_t> ids, int64_t count,
                              const GenerateOptions& options, const std::function<bool(int32_t)>& go_on = {},
                              const Source& source = {}, const Poll& poll = kNoPoll);

// Greedy decoding: continues each row of ids (B,T) by the most likely token, `count` times, and returns the
// new tokens (B,count). T is at least 1. T + count - 1, the number of tokens that the model reads, is at most
// block_size.
std::vector<std::vector<int32_t>> greedy(Model& model, const Tensor& ids, int64_t count,
                                         const Source& source = {}, const Poll& poll = kNoPoll);

}  // namespace bonsai
