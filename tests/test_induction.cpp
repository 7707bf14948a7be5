// The induction task: the sequences that it draws, and that training never sees validation data.
#include <map>
#include <set>

#include "bonsai/layers/model/transformer.h"
#include "bonsai/tests/training.h"
#include "bonsai/trainers/task/induction.h"

namespace bonsai::test {
namespace {

std::vector<std::vector<int32_t>> rows_of(const Tensor& x) {
  std::vector<std::vector<int32_t>> rows;
  const auto all = x.span<int32_t>();
  for (int64_t r = 0; r < x.size(0); ++r)
    rows.emplace_back(all.begin() + r * x.size(1), all.begin() + (r + 1) * x.size(1));
  return rows;
}

// The smallest period of a row.
int64_t period_of(const std::vector<int32_t>& row) {
  for (size_t n = 1; n < row.size(); ++n)
    if (std::equal(row.begin() + static_cast<int64_t>(n), row.end(), row.begin()))
      return static_cast<int64_t>(n);
  return static_cast<int64_t>(row.size());
}

TEST(Induction, RepeatsABlockOfRandomLengthAndAsksForItsSecondHalf) {
  Induction task;
  task.prepare(64, 1, nullptr);
  EXPECT_EQ(task.vocab_size(), 32);
  std::set<int64_t> lengths;
  std::set<std::vector<int32_t>> seen;
  for (int64_t step = 0; step < 20; ++step) {
    const Batch batch = task.batch({.seed = 1, .step = step}, 32);
    const auto inputs = rows_of(batch.inputs), targets = rows_of(batch.targets);
    for (size_t r = 0; r < inputs.size(); ++r) {
      const int64_t n = period_of(inputs[r]);
      lengths.insert(n);
      EXPECT_TRUE(seen.insert(inputs[r]).second) << "drawn twice";
      for (size_t t = 0; t < 64; ++t) {
        const int32_t next = t + 1 < 64 ? inputs[r][t + 1] : inputs[r][64 - static_cast<size_t>(n)];
        EXPECT_EQ(targets[r][t], t + 1 <= 32 ? kIgnore : next);
      }
    }
  }
  EXPECT_EQ(*lengths.begin(), 8);
  EXPECT_EQ(*lengths.rbegin(), 32);
  EXPECT_EQ(lengths.size(), 19u) << "of 25, six are kept for validation";
  for (const int64_t n : lengths) EXPECT_NE(n % 4, 2) << n;
}

// If one random number gave both, each length would have only the two or three first tokens of its part of
// [0, 1).
TEST(Induction, TheFirstTokenDoesNotFollowFromTheLength) {
  Induction task;
  task.prepare(64, 1, nullptr);
  std::map<int64_t, std::set<int32_t>> first;
  for (const auto& row : rows_of(task.batch({.seed = 1}, 2000).inputs)) first[period_of(row)].insert(row[0]);
  EXPECT_EQ(first.size(), 19u);
  for (const auto& [length, tokens] : first)
    EXPECT_GE(tokens.size(), 24u) << length << ": about 105 rows, 32 tokens";
}

// Validation sequences have other lengths, so memorizing the training rows does not help.
TEST(Induction, ValidationHasLengthsThatAreNeverTrained) {
  Induction task;
  task.prepare(64, 1, nullptr);
  std::set<int64_t> lengths;
  for (const auto& row : rows_of(task.validation(0, 512).inputs)) lengths.insert(period_of(row));
  EXPECT_EQ(lengths, (std::set<int64_t>{10, 14, 18, 22, 26, 30}));
  Module root;
  Transformer model(&root, "",
                    {.vocab_size = 32, .block_size = 64, .n_layers = 1, .n_heads = 1, .d_model = 4});
  EXPECT_NEAR(task.evaluate(model, 64, 0, kNoPoll).loss, std::log(32.0), 0.05) << "an untrained model";
}

TEST(Induction, SizesThatDoNotFitAreRefused) {
  Induction task;
  EXPECT_NE(error_of([&] { task.prepare(63, 1, nullptr); }).find("twice data.longest"), std::string::npos);
}

}  // namespace
}  // namespace bonsai::test
