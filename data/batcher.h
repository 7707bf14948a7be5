// Batches of windows of one long token sequence: at random positions for training, consecutive for
// evaluation. A batch depends only on its index, so a resumed run gets the same batches.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bonsai/framework/core/tensor.h"

namespace bonsai {

constexpr int32_t kIgnore = -100;  // a target that the loss ignores

struct Batch {
  Tensor inputs, targets;  // (B,T) i32 on the host; a target is the token after its input
  // For tasks with a source: the encoder's input (B,S) i32, and its padding mask (B,S), 0 for padding.
  Tensor source = {}, source_padding_mask = {};

  // A copy on that device.
  Batch to(Device device) const {
    return {inputs.to(device), targets.to(device), source.to(device), source_padding_mask.to(device)};
  }
};

// Identifies a random batch. Row r of a batch with first_row f is row f + r of the step's batch, so ranks can
// divide a batch by rows.
struct BatchIndex {
  uint64_t seed = 0;
  int64_t step = 0, micro_batch = 0;  // below 2^32 and 2^16
  int64_t first_row = 0;
};

// What evaluation does with the targets after the last whole block. `padded`: they form a block that is
// padded with ignored targets, so that every target is evaluated and two tokens are enough.
enum class Rest { left_out, padded };

class Batcher {
 public:
  // Errors contain `name`: "train", "validation". Throws if there are fewer than block_size + 1 tokens (two
  // with Rest::padded), or if an id is outside the vocabulary.
  Batcher(std::string name, std::vector<int32_t> tokens, int64_t block_size, int64_t vocab_size,
          Rest rest = Rest::left_out);

  int64_t tokens() const { return static_cast<int64_t>(tokens_.size()); }
  int64_t block_size() const { return block_size_; }
  std::string identity() const;  // "900 tokens, checksum 0123456789abcdef"
  int64_t windows() const { return tokens() - block_size_; }  // number of start positions

  // Starts are uniform over windows(), drawn with replacement.
  Batch random(const BatchIndex& index, int64_t batch_size) const;
  Batch at(std::span<const int64_t> starts) const;

  // Evaluation in a fixed order: block i begins at token i * block_size, so each target counts once. The last
  // batch has the remaining blocks and may be smaller.
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
