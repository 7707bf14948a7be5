#include "bonsai/trainers/task/reverse.h"

#include <algorithm>

#include "bonsai/framework/ops/ops.h"
#include "bonsai/trainers/generate.h"

namespace bonsai {

void Reverse::visit(Visitor& v) {
  v("length", length_, "number of symbols per sequence", between(1, 1000));
  v("alphabet", alphabet_, "number of different symbols", between(2, 26));
  v("evaluation_sequences", evaluation_sequences_, "number of sequences per evaluation, decoded greedily",
    at_least(1));
}

void Reverse::prepare(int64_t block_size, uint64_t seed, std::shared_ptr<Tokenizer>) {
  check(block_size >= 2 * length_, "data", "model.block_size {} is less than {}, twice data.length",
        block_size, 2 * length_);
  seed_ = seed;
  tokenizer_ = letters(alphabet_, "|");
}

Batch Reverse::sequences(uint64_t seed, const std::string& stream, int64_t first, int64_t count) const {
  const int64_t time = 2 * length_;
  std::vector<int32_t> inputs, targets;
  for (int64_t row = first; row < first + count; ++row) {
    const RandomKey key = random_key(seed, stream + " " + std::to_string(row));
    std::vector<int32_t> line;
    for (int64_t i = 0; i < length_; ++i)
      line.push_back(static_cast<int32_t>(random_uniform(key, static_cast<uint64_t>(i)) *
                                          static_cast<double>(alphabet_)));
    line.push_back(static_cast<int32_t>(alphabet_));
    for (int64_t i = length_; i-- > 0;) line.push_back(line[static_cast<size_t>(i)]);
    inputs.insert(inputs.end(), line.begin(), line.end() - 1);
    targets.insert(targets.end(), static_cast<size_t>(length_), kIgnore);
    targets.insert(targets.end(), line.begin() + length_ + 1, line.end());
  }
  return {from<int32_t>({count, time}, inputs), from<int32_t>({count, time}, targets)};
}

Batch Reverse::batch(const BatchIndex& index, int64_t batch_size) const {
  const std::string stream =
      "reverse " + std::to_string(index.step) + " " + std::to_string(index.micro_batch);
  return sequences(index.seed, stream, index.first_row, batch_size);
}

// Decodes token by token, with the model's own tokens as input.
std::vector<std::vector<int32_t>> Reverse::answers(Model& model, const Batch& batch,
                                                   const Poll& poll) const {
  return greedy(model, slice(batch.inputs, 1, 0, length_ + 1), length_, {}, poll);
}

Evaluation Reverse::evaluate(Model& model, int64_t batch_size, int64_t max_batches,
                             const Poll& poll) const {
  const auto draw = [&](int64_t first, int64_t count) {
    return sequences(seed_, "reverse validation", first, count);
  };
  const auto count_right = [&](const Batch& b) {
    const auto answered = answers(model, b, poll);
    const auto targets = b.targets.span<int32_t>();
    int64_t right = 0;
    for (size_t r = 0; r < answered.size(); ++r)
      right += std::equal(answered[r].begin(), answered[r].end(),
                          targets.begin() + static_cast<int64_t>(r) * 2 * length_ + length_);
    return right;
  };
  return evaluation_over(model, evaluation_sequences_, batch_size, max_batches, poll, draw, count_right);
}

std::string Reverse::sample(Model& model, uint64_t seed, const Poll& poll) const {
  const Batch batch = sequences(seed, "reverse sample", 0, 1);
  const auto ids = batch.inputs.span<int32_t>();
  return tokenizer_->decode(ids.subspan(0, static_cast<size_t>(length_) + 1)) +
         tokenizer_->decode(answers(model, batch, poll)[0]);
}

// A prompt has all letters, the bar, and possibly the beginning of the answer.
Batch Reverse::prompt(const Tokenizer& tokenizer, const std::string& text) const {
  Batch batch = Task::prompt(tokenizer, text);
  const auto ids = batch.inputs.span<int32_t>();
  const int32_t bar = tokenizer.encode("|")[0];
  const auto length = static_cast<size_t>(length_);
  check(ids.size() > length && ids.size() <= 2 * length + 1 && ids[length] == bar &&
            std::count(ids.begin(), ids.end(), bar) == 1,
        "prompt", "must be {} letters and '|', and after it at most {} letters of the answer", length_,
        length_);
  return batch;
}

int64_t Reverse::answer_length(const Batch& prompt, int64_t) const {
  return 2 * length_ + 1 - prompt.inputs.size(1);
}

void register_reverse() { add_part<TaskKind, Reverse>("reverse"); }

}  // namespace bonsai
