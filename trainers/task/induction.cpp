#include "bonsai/trainers/task/induction.h"

#include <algorithm>

#include "bonsai/data/tokenizer/char.h"
#include "bonsai/trainers/generate.h"

namespace bonsai {

void Induction::visit(Visitor& v) {
  v("shortest", shortest_, "length of the shortest block", between(2, 10000));
  v("longest", longest_, "length of the longest block; at most half of model.block_size", between(2, 10000));
  v("vocabulary", vocabulary_, "number of different tokens", between(2, 10000));
  v("evaluation_sequences", evaluation_sequences_, "number of sequences per evaluation", between(1, 1e9));
}

void Induction::prepare(int64_t block_size, uint64_t seed, std::shared_ptr<Tokenizer>) {
  check(longest_ - shortest_ >= 3, "data", "data.longest {} must be at least 3 above data.shortest {}",
        longest_, shortest_);
  check(block_size >= 2 * longest_, "data", "model.block_size {} is less than {}, twice data.longest",
        block_size, 2 * longest_);
  time_ = block_size, seed_ = seed;
  trained_.clear(), validated_.clear();
  for (int64_t n = shortest_; n <= longest_; ++n) (n % 4 == 2 ? validated_ : trained_).push_back(n);
  std::vector<char32_t> symbols;  // letters first, so that samples are readable
  for (int64_t i = 0; i < vocabulary_; ++i)
    symbols.push_back((i < 26 ? U'A' : i < 52 ? U'a' - 26 : 0x100) + static_cast<char32_t>(i));
  tokenizer_ = std::make_shared<CharTokenizer>(symbols);
}

Batch Induction::sequences(uint64_t seed, const std::string& stream, int64_t first, int64_t count,
                           const std::vector<int64_t>& lengths) const {
  std::vector<int32_t> inputs, targets;
  for (int64_t row = first; row < first + count; ++row) {
    const RandomKey key = random_key(seed, stream + " " + std::to_string(row));
    const auto choice = static_cast<size_t>(random_uniform(key, 0) * static_cast<double>(lengths.size()));
    const auto length = static_cast<uint64_t>(lengths[choice]);
    const auto token = [&](int64_t t) {
      return static_cast<int32_t>(random_uniform(key, 1 + static_cast<uint64_t>(t) % length) *
                                  static_cast<double>(vocabulary_));
    };
    for (int64_t t = 0; t < time_; ++t) {
      inputs.push_back(token(t));
      targets.push_back(t + 1 <= time_ / 2 ? kIgnore : token(t + 1));
    }
  }
  return {from<int32_t>({count, time_}, inputs), from<int32_t>({count, time_}, targets)};
}

Batch Induction::batch(const BatchIndex& index, int64_t batch_size) const {
  const std::string stream =
      "induction " + std::to_string(index.step) + " " + std::to_string(index.micro_batch);
  return sequences(index.seed, stream, index.first_row, batch_size, trained_);
}

Batch Induction::validation(int64_t first, int64_t count) const {
  return sequences(seed_, "induction validation", first, count, validated_);
}

Evaluation Induction::evaluate(Model& model, int64_t batch_size, int64_t max_batches,
                               const Poll& poll) const {
  return evaluation_over(model, evaluation_sequences_, batch_size, max_batches, poll,
                         [&](int64_t first, int64_t count) { return validation(first, count); });
}

// Shows one and a half blocks and the continuation by the model.
std::string Induction::sample(Model& model, uint64_t seed, const Poll& poll) const {
  const Batch batch = sequences(seed, "induction sample", 0, 1, {shortest_});
  const auto ids = batch.inputs.span<int32_t>();
  const auto seen = static_cast<size_t>(shortest_ + shortest_ / 2);
  const std::vector<int32_t> all = generate(model, {ids.begin(), ids.begin() + static_cast<int64_t>(seen)},
                                            shortest_, {.temperature = 0}, {}, {}, poll);
  return tokenizer_->decode(std::span(all).first(seen)) + " -> " +
         tokenizer_->decode(std::span(all).subspan(seen));
}

// A prompt must have a block and at least the beginning of its repetition, which determine the answer.
Batch Induction::prompt(const Tokenizer& tokenizer, const std::string& text) const {
  Batch batch = Task::prompt(tokenizer, text);
  const auto ids = batch.inputs.span<int32_t>();
  bool repeats = false;
  for (int64_t n = shortest_; n <= longest_ && n < std::ssize(ids) && !repeats; ++n)
    repeats = std::equal(ids.begin() + n, ids.end(), ids.begin());
  check(repeats, "prompt",
        "must be a block of {} to {} tokens and the same block again, or the beginning of it", shortest_,
        longest_);
  return batch;
}

// An answer ends with the target of the model's last position.
int64_t Induction::answer_length(const Batch& prompt, int64_t block_size) const {
  return std::max<int64_t>(0, block_size + 1 - prompt.inputs.size(1));
}

void register_induction() { add_part<TaskKind, Induction>("induction"); }

}  // namespace bonsai
