// my_part: a task. `task: my_part` in a config selects it, and the keys of visit() are those of the data
// section.
//
// This one draws letters and a bar and asks for the same letters again: abc|abc. Replace sequences() with
// data of your own. It must depend on its arguments alone, so that a resumed run sees the same batches.
#include <fmt/format.h>

#include "bonsai/framework/ops/ops.h"
#include "bonsai/trainers/generate.h"
#include "bonsai/trainers/task/task.h"

namespace bonsai {
namespace {

class MyPart final : public Task {
 public:
  std::string name() const override { return "my_part"; }
  void visit(Visitor& v) override {
    v("length", length_, "letters in a sequence", between(1, 1000));
    v("alphabet", alphabet_, "different letters", between(2, 26));
  }
  void prepare(int64_t block_size, uint64_t seed, std::shared_ptr<Tokenizer>) override {
    check(block_size >= 2 * length_, "data", "model.block_size {} is less than {}, twice data.length",
          block_size, 2 * length_);
    seed_ = seed;
    tokenizer_ = letters(alphabet_, "|");
  }
  DataIdentity identity() const override { return drawn_with(seed_); }
  int64_t vocab_size() const override { return alphabet_ + 1; }
  std::shared_ptr<Tokenizer> tokenizer() const override { return tokenizer_; }

  Batch batch(const BatchIndex& index, int64_t batch_size) const override {
    const std::string stream = fmt::format("my_part {} {}", index.step, index.micro_batch);
    return sequences(index.seed, stream, index.first_row, batch_size);
  }
  Evaluation evaluate(Model& model, int64_t batch_size, int64_t max_batches,
                      const Poll& poll) const override {
    constexpr int64_t kSequences = 100;
    const auto draw = [this](int64_t first, int64_t count) {
      return sequences(seed_, "my_part validation", first, count);
    };
    return evaluation_over(model, kSequences, batch_size, max_batches, poll, draw);
  }
  std::string sample(Model& model, uint64_t seed, const Poll& poll) const override {
    const Tensor question = slice(sequences(seed, "my_part sample", 0, 1).inputs, 1, 0, length_ + 1);
    return tokenizer_->decode(question.span<int32_t>()) +
           tokenizer_->decode(greedy(model, question, length_, {}, poll)[0]);
  }

 private:
  // Rows [first, first + count) of a stream: inputs and targets are i32 (count, 2 * length). kIgnore: no
  // target.
  Batch sequences(uint64_t seed, const std::string& stream, int64_t first, int64_t count) const {
    const int64_t time = 2 * length_;
    std::vector<int32_t> inputs, targets;
    for (int64_t row = first; row < first + count; ++row) {
      const RandomKey key = random_key(seed, fmt::format("{} {}", stream, row));
      const auto token = [&](int64_t i) {
        if (i == length_) return static_cast<int32_t>(alphabet_);  // the bar
        const auto place = static_cast<uint64_t>(i < length_ ? i : i - length_ - 1);
        return static_cast<int32_t>(random_uniform(key, place) * static_cast<double>(alphabet_));
      };
      for (int64_t i = 0; i < time; ++i) {
        inputs.push_back(token(i));
        targets.push_back(i < length_ ? static_cast<int32_t>(kIgnore) : token(i + 1));
      }
    }
    return {from<int32_t>({count, time}, inputs), from<int32_t>({count, time}, targets)};
  }

  int64_t length_ = 8;
  int64_t alphabet_ = 10;
  uint64_t seed_ = 1;
  std::shared_ptr<Tokenizer> tokenizer_;
};

}  // namespace

void register_my_part() { add_part<TaskKind, MyPart>("my_part"); }

}  // namespace bonsai
