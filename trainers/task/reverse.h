// A sequence of symbols followed by its reversal, which can only be learned by attending to positions.
#pragma once

#include "bonsai/trainers/task/task.h"

namespace bonsai {

// abc|cba: the loss is over the symbols after the bar. Each batch has new random symbols.
class Reverse final : public Task {
 public:
  std::string name() const override { return "reverse"; }
  void visit(Visitor& v) override;
  void prepare(int64_t block_size, uint64_t seed, std::shared_ptr<Tokenizer> tokenizer) override;
  DataIdentity identity() const override { return drawn_with(seed_); }
  int64_t vocab_size() const override { return alphabet_ + 1; }
  std::shared_ptr<Tokenizer> tokenizer() const override { return tokenizer_; }
  Batch batch(const BatchIndex& index, int64_t batch_size) const override;
  Evaluation evaluate(Model& model, int64_t batch_size, int64_t max_batches,
                      const Poll& poll) const override;
  std::string sample(Model& model, uint64_t seed, const Poll& poll) const override;
  Batch prompt(const Tokenizer& tokenizer, const std::string& text) const override;
  int64_t answer_length(const Batch& prompt, int64_t block_size) const override;

 private:
  Batch sequences(uint64_t seed, const std::string& stream, int64_t first, int64_t count) const;
  std::vector<std::vector<int32_t>> answers(Model& model, const Batch& batch, const Poll& poll) const;

  int64_t length_ = 10;
  int64_t alphabet_ = 10;
  int64_t evaluation_sequences_ = 1000;
  uint64_t seed_ = 1;
  std::shared_ptr<Tokenizer> tokenizer_;
};

}  // namespace bonsai
