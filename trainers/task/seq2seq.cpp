#include "bonsai/trainers/task/seq2seq.h"

#include <algorithm>

#include "bonsai/framework/ops/ops.h"
#include "bonsai/trainers/generate.h"

namespace bonsai {
namespace {

// Special symbols; their ids follow those of the letters in this order.
constexpr const char *kBegin = "|", *kEnd = "~";

}  // namespace

void Seq2Seq::visit(Visitor& v) {
  v("answer", answer_, "the answer: the source reversed or sorted", OneOf{{"reverse", "sort"}});
  v("shortest", shortest_, "number of letters of the shortest source", between(1, 1000));
  v("longest", longest_, "number of letters of the longest source; below model.block_size", between(1, 1000));
  v("alphabet", alphabet_, "number of different letters", between(2, 26));
  v("evaluation_sequences", evaluation_sequences_, "number of sequences per evaluation, decoded greedily",
    between(1, 1e9));
}

void Seq2Seq::prepare(int64_t block_size, uint64_t seed, std::shared_ptr<Tokenizer>) {
  check(shortest_ <= longest_, "data", "data.shortest {} is above data.longest {}", shortest_, longest_);
  check(block_size > longest_, "data", "model.block_size {} is not above data.longest {}", block_size,
        longest_);
  seed_ = seed;
  tokenizer_ = letters(alphabet_, std::string(kBegin) + kEnd);
}

// Rows are padded with the end symbol, which is masked in the encoder and ignored in the loss.
Batch Seq2Seq::sequences(uint64_t seed, const std::string& stream, int64_t first, int64_t count) const {
  const int32_t begin = tokenizer_->encode(kBegin)[0], end = end_token(*tokenizer_);
  std::vector<int32_t> source, padding_mask, inputs, targets;
  for (int64_t row = first; row < first + count; ++row) {
    const RandomKey key = random_key(seed, stream + " " + std::to_string(row));
    const auto below = [&](uint64_t i, int64_t most) {
      return static_cast<int64_t>(random_uniform(key, i) * static_cast<double>(most));
    };
    const int64_t length = shortest_ + below(0, longest_ - shortest_ + 1);
    std::vector<int32_t> line;
    for (int64_t i = 0; i < length; ++i)
      line.push_back(static_cast<int32_t>(below(1 + static_cast<uint64_t>(i), alphabet_)));
    for (int64_t i = 0; i < longest_; ++i) {
      source.push_back(i < length ? line[static_cast<size_t>(i)] : end);
      padding_mask.push_back(i < length);
    }
    answer_ == "sort" ? std::sort(line.begin(), line.end()) : std::reverse(line.begin(), line.end());
    for (int64_t i = 0; i <= longest_; ++i) {
      const auto at = static_cast<size_t>(i);
      inputs.push_back(i == 0 ? begin : i <= length ? line[at - 1] : end);
      targets.push_back(i < length ? line[at] : i == length ? end : kIgnore);
    }
  }
  return {.inputs = from<int32_t>({count, longest_ + 1}, inputs),
          .targets = from<int32_t>({count, longest_ + 1}, targets),
          .source = from<int32_t>({count, longest_}, source),
          .source_padding_mask = from<int32_t>({count, longest_}, padding_mask)};
}

Batch Seq2Seq::batch(const BatchIndex& index, int64_t batch_size) const {
  const std::string stream =
      "seq2seq " + std::to_string(index.step) + " " + std::to_string(index.micro_batch);
  return sequences(index.seed, stream, index.first_row, batch_size);
}

// Answers include the end symbol, unless the model writes none within longest_ + 1 tokens.
std::vector<std::vector<int32_t>> Seq2Seq::answers(Model& model, const Batch& batch,
                                                   const Poll& poll) const {
  auto all = greedy(model, slice(batch.inputs, 1, 0, 1), longest_ + 1, source_of(batch), poll);
  const int32_t end = end_token(*tokenizer_);
  for (std::vector<int32_t>& answer : all)
    if (const auto at = std::find(answer.begin(), answer.end(), end); at != answer.end())
      answer.erase(at + 1, answer.end());
  return all;
}

// Uses the bitwise complement of the training seed, so that no training batch draws from it.
Batch Seq2Seq::validation(int64_t first, int64_t count) const {
  return sequences(~seed_, "seq2seq validation", first, count);
}

Evaluation Seq2Seq::evaluate(Model& model, int64_t batch_size, int64_t max_batches,
                             const Poll& poll) const {
  const auto draw = [&](int64_t first, int64_t count) { return validation(first, count); };
  const auto count_right = [&](const Batch& b) {
    const auto answered = answers(model, b, poll);
    const auto targets = b.targets.span<int32_t>();
    int64_t right = 0;
    for (size_t r = 0; r < answered.size(); ++r) {
      const auto row =
          targets.subspan(r * static_cast<size_t>(longest_ + 1), static_cast<size_t>(longest_ + 1));
      right += std::equal(answered[r].begin(), answered[r].end(), row.begin(),
                          std::find(row.begin(), row.end(), kIgnore));
    }
    return right;
  };
  return evaluation_over(model, evaluation_sequences_, batch_size, max_batches, poll, draw, count_right);
}

std::string Seq2Seq::sample(Model& model, uint64_t seed, const Poll& poll) const {
  const Batch batch = sequences(seed, "seq2seq sample", 0, 1);
  std::vector<int32_t> line;
  for (int64_t i = 0; i < longest_; ++i)
    if (batch.source_padding_mask.span<int32_t>()[static_cast<size_t>(i)])
      line.push_back(batch.source.span<int32_t>()[static_cast<size_t>(i)]);
  return tokenizer_->decode(line) + kBegin + tokenizer_->decode(answers(model, batch, poll)[0]);
}

Batch Seq2Seq::prompt(const Tokenizer& tokenizer, const std::string& text) const {
  const std::vector<int32_t> begin = tokenizer.encode(kBegin);
  const Tensor source = Task::prompt(tokenizer, text).inputs;
  for (const int32_t id : source.span<int32_t>())
    check(id < begin[0], "source", "'{}' is a sign of the task, not one of the {} letters",
          tokenizer.decode(std::vector<int32_t>{id}), begin[0]);
  const int64_t length = source.size(1);
  check(length >= shortest_ && length <= longest_, "source", "has {} letters; this task's have {} to {}",
        length, shortest_, longest_);
  return {.inputs = from<int32_t>({1, 1}, begin), .targets = {}, .source = source};
}

int32_t Seq2Seq::end_token(const Tokenizer& tokenizer) const { return tokenizer.encode(kEnd)[0]; }

void register_seq2seq() { add_part<TaskKind, Seq2Seq>("seq2seq"); }

}  // namespace bonsai
