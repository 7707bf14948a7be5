// Sequence to sequence: an encoder reads the source, a decoder writes the answer.
#pragma once

#include "bonsai/trainers/task/task.h"

namespace bonsai {

// The source has a random number of letters; the answer is the source reversed or sorted. The decoder's input
// begins with `|`, and the answer ends with `~`: for the source cab, sorted, it is abc~.
class Seq2Seq final : public Task {
 public:
  std::string name() const override { return "seq2seq"; }
  void visit(Visitor& v) override;
  void prepare(int64_t block_size, uint64_t seed, std::shared_ptr<Tokenizer> tokenizer) override;
  DataIdentity identity() const override { return drawn_with(seed_); }
  int64_t vocab_size() const override { return alphabet_ + 2; }
  std::shared_ptr<Tokenizer> tokenizer() const override { return tokenizer_; }
  bool has_source() const override { return true; }
  Batch batch(const BatchIndex& index, int64_t batch_size) const override;
  Evaluation evaluate(Model& model, int64_t batch_size, int64_t max_batches,
                      const Poll& poll) const override;
  std::string sample(Model& model, uint64_t seed, const Poll& poll) const override;
  Batch validation(int64_t first, int64_t count) const;  // validation sequences [first, first + count)
  Batch prompt(const Tokenizer& tokenizer, const std::string& text) const override;
  int32_t end_token(const Tokenizer& tokenizer) const override;
  int64_t answer_length(const Batch&, int64_t) const override { return longest_ + 1; }

 private:
  Batch sequences(uint64_t seed, const std::string& stream, int64_t first, int64_t count) const;
  std::vector<std::vector<int32_t>> answers(Model& model, const Batch& batch, const Poll& poll) const;

  std::string answer_ = "sort";
  int64_t shortest_ = 3;
  int64_t longest_ = 10;
  int64_t alphabet_ = 10;
  int64_t evaluation_sequences_ = 1000;
  uint64_t seed_ = 1;
  std::shared_ptr<Tokenizer> tokenizer_;
};

}  // namespace bonsai
