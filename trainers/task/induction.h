// Induction: a random block of random length is repeated, so that the token after an earlier occurrence
// predicts the next one. A model with two layers can learn to find it; a model with one layer cannot.
//                                                                   Olsson et al. 2022, arXiv:2209.11895
#pragma once

#include "bonsai/trainers/task/task.h"

namespace bonsai {

// The loss is over the second half of the sequence, where the successor of every token has occurred before.
// Each batch has new random blocks. A quarter of the lengths is used only for validation.
class Induction final : public Task {
 public:
  std::string name() const override { return "induction"; }
  void visit(Visitor& v) override;
  void prepare(int64_t block_size, uint64_t seed, std::shared_ptr<Tokenizer> tokenizer) override;
  DataIdentity identity() const override { return drawn_with(seed_); }
  int64_t vocab_size() const override { return vocabulary_; }
  std::shared_ptr<Tokenizer> tokenizer() const override { return tokenizer_; }
  Batch batch(const BatchIndex& index, int64_t batch_size) const override;
  Evaluation evaluate(Model& model, int64_t batch_size, int64_t max_batches,
                      const Poll& poll) const override;
  std::string sample(Model& model, uint64_t seed, const Poll& poll) const override;
  Batch prompt(const Tokenizer& tokenizer, const std::string& text) const override;
  int64_t answer_length(const Batch& prompt, int64_t block_size) const override;
  Batch validation(int64_t first, int64_t count) const;  // validation sequences [first, first + count)

 private:
  Batch sequences(uint64_t seed, const std::string& stream, int64_t first, int64_t count,
                  const std::vector<int64_t>& lengths) const;

  int64_t shortest_ = 8;
  int64_t longest_ = 32;
  int64_t vocabulary_ = 32;
  int64_t evaluation_sequences_ = 512;
  int64_t time_ = 0;
  uint64_t seed_ = 1;
  std::vector<int64_t> trained_, validated_;  // lengths
  std::shared_ptr<Tokenizer> tokenizer_;
};

}  // namespace bonsai
