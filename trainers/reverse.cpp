#include "trainers/reverse.h"

#include <algorithm>

#include "framework/ops/ops.h"
#include "layers/cache.h"

namespace bonsai {

void Reverse::visit(Visitor& v) {
  v("length", length_, "symbols in a sequence", between(1, 1000));
  v("alphabet", alphabet_, "different symbols", between(2, 26));
  v("evaluation_sequences", evaluation_sequences_, "sequences of an evaluation, answered greedily",
    at_least(1));
}

void Reverse::prepare(int64_t block_size, uint64_t seed, std::shared_ptr<Tokenizer>) {
  check(block_size >= 2 * length_, "data", "model.block_size {} is less than {}, twice data.length",
        block_size, 2 * length_);
  seed_ = seed;
  std::vector<char32_t> symbols;
  for (int64_t i = 0; i < alphabet_; ++i) symbols.push_back(U'a' + static_cast<char32_t>(i));
  symbols.push_back(U'|');
  tokenizer_ = std::make_shared<CharTokenizer>(symbols);
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

// Token by token, each from what the model itself wrote before.
std::vector<std::vector<int32_t>> Reverse::answers(Decoder& model, const Batch& batch) const {
  const int64_t count = batch.inputs.size(0), time = batch.inputs.size(1),
                vocabulary = model.config().vocab_size;
  std::vector<std::vector<int32_t>> all(static_cast<size_t>(count));
  KeyValueCache cache(time);
  Tensor next = slice(batch.inputs, 1, 0, length_ + 1);
  for (int64_t t = length_; t < time; ++t) {
    Context context;
    context.first_position = cache.length(), context.cache = &cache;
    const std::vector<double> logits = model.last_logits(next, context).values();
    std::vector<int32_t> best;
    for (int64_t r = 0; r < count; ++r) {
      const auto row = logits.begin() + r * vocabulary;
      best.push_back(static_cast<int32_t>(std::max_element(row, row + vocabulary) - row));
      all[static_cast<size_t>(r)].push_back(best.back());
    }
    next = from<int32_t>({count, 1}, best);
  }
  return all;
}

Evaluation Reverse::evaluate(Decoder& model, int64_t batch_size, int64_t most_batches) const {
  double sum = 0;
  int64_t tokens = 0, right = 0, done = 0;
  const int64_t wanted =
      most_batches > 0 ? std::min(evaluation_sequences_, most_batches * batch_size) : evaluation_sequences_;
  while (done < wanted) {
    const Batch batch = sequences(seed_, "reverse validation", done, std::min(batch_size, wanted - done));
    Context context;
    const LossSum loss = loss_of(model, batch, context);
    sum += loss.sum.item();
    tokens += loss.tokens;
    const auto answered = answers(model, batch);
    const auto targets = batch.targets.span<int32_t>();
    for (size_t r = 0; r < answered.size(); ++r) {
      const auto expected = targets.begin() + static_cast<int64_t>(r) * 2 * length_ + length_;
      right += std::equal(answered[r].begin(), answered[r].end(), expected);
    }
    done += batch.inputs.size(0);
  }
  return {.loss = sum / static_cast<double>(tokens),
          .exact_match = static_cast<double>(right) / static_cast<double>(done)};
}

std::string Reverse::sample(Decoder& model, uint64_t seed) const {
  const Batch batch = sequences(seed, "reverse sample", 0, 1);
  const auto ids = batch.inputs.span<int32_t>();
  return tokenizer_->decode(ids.subspan(0, static_cast<size_t>(length_) + 1)) +
         tokenizer_->decode(answers(model, batch)[0]);
}

}  // namespace bonsai
