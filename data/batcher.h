// Windows of one long sequence of tokens, as batches: at random places to train, one after the other to
// evaluate. A batch is a function of its numbers and nothing else, so a run that resumes sees what it would
// have seen.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bonsai/framework/core/tensor.h"

namespace bonsai {

constexpr int32_t kIgnore = -100;  // a target that does not count

struct Batch {
  Tensor inputs, targets;  // (B,T) i32 on the host; a target is the token after its input
  // Of a task that has a source: what an encoder reads, (B,S) i32, and 0 where that is padding.
  Tensor source = {}, source_padding_mask = {};

  Batch to(Device device) const {
    return {inputs.to(device), targets.to(device), source.to(device), source_padding_mask.to(device)};
  }
};

// What names a random batch. Row r of one with first_row f is row f + r: ranks share a batch by rows.
struct BatchIndex {
  uint64_t seed = 0;
  int64_t step = 0, micro_batch = 0;  // below 2^32 and 2^16
  int64_t first_row = 0;
};

// What becomes of the targets after the last whole block in evaluation. Padded, they are a block of their own, filled up
// with targets that do not count: every target is evaluated, of as little as two tokens.
enum class Rest { left_out, padded };

class Batcher {
 public:
  // `name` is said in errors: "train", "validation". Fewer than block_size + 1 tokens (two with Rest::padded), or an id
  // outside the vocabulary, are refused here.
  Batcher(std::string name, std::vector<int32_t> tokens, int64_t block_size, int64_t vocab_size,
          Rest rest = Rest::left_out);

  int64_t tokens() const { return static_cast<int64_t>(tokens_.size()); }
  int64_t block_size() const { return block_size_; }
  std::string identity() const;  // "900 tokens, checksum 0123456789abcdef"
  int64_t windows() const { return tokens() - block_size_; }  // places to start at

  // Starts are uniform over windows(), drawn with replacement.
  Batch random(const BatchIndex& index, int64_t batch_size) const;
  Batch at(std::span<const int64_t> starts) const;

  // Evaluation, always in the same order: block i begins at token i * block_size, so each target counts once.
  // Batches need not be whole: the last has the blocks that remain.
  int64_t blocks() const {
    return (tokens() - 1 + (rest_ == Rest::padded ? block_size_ - 1 : 0)) / block_size_;
  }
  int64_t evaluation_batches(int64_t batch_size) const;
  Batch evaluation(int64_t index, int64_t batch_size) const;

 private:
  std::string name_;
  std::vector<int32_t> tokens_;
  int64_t block_size_;
  Rest rest_;
};

}  // namespace bonsai
