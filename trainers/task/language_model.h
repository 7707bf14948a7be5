// Predicts the next token of a text: tiny tales, a text file, or random ids.
#pragma once

#include <optional>

#include "bonsai/data/text.h"
#include "bonsai/trainers/task/task.h"

namespace bonsai {

class LanguageModel final : public Task {
 public:
  std::string name() const override { return "language_model"; }
  void visit(Visitor& v) override;
  void resolve(const std::filesystem::path& folder) override;
  std::filesystem::path file() const override { return source_ == "file" ? path_ : ""; }
  void evaluate_file(const std::filesystem::path& file, bool whole) override;
  void prepare(int64_t block_size, uint64_t seed, std::shared_ptr<Tokenizer> tokenizer) override;
  DataIdentity identity() const override { return identity_; }
  int64_t vocab_size() const override { return tokenizer_->vocab_size(); }
  std::shared_ptr<Tokenizer> tokenizer() const override { return tokenizer_; }
  double floor() const override;
  Batch batch(const BatchIndex& index, int64_t batch_size) const override;
  Evaluation evaluate(Model& model, int64_t batch_size, int64_t max_batches,
                      const Poll& poll) const override;
  std::string sample(Model& model, uint64_t seed, const Poll& poll) const override;

 private:
  // training: batch() draws from the first part of the data, evaluate() takes the part that is held back.
  // held_back, whole: only evaluate(), on the held-back part or the whole file.
  enum class Use { training, held_back, whole };

  bool from_tales() const { return source_ == "tales"; }
  Split read(std::shared_ptr<Tokenizer> tokenizer);  // also sets tokenizer_
  std::vector<int32_t> encoded(const std::string& text) const;

  std::string source_ = "tales";
  std::string path_;
  Choice<TokenizerKind> tokenizer_kind_;
  int64_t characters_ = 1000000;
  int64_t vocabulary_ = 65;
  double validation_fraction_ = 0.1;
  int64_t seed_ = 1;

  Use use_ = Use::training;
  DataIdentity identity_;
  std::shared_ptr<Tokenizer> tokenizer_;
  std::optional<Batcher> train_, validation_;
};

}  // namespace bonsai
