#include "bonsai/data/batcher.h"

#include <algorithm>
#include <utility>

#include "bonsai/data/tokenizer/tokenizer.h"
#include "bonsai/framework/core/checksum.h"
#include "bonsai/framework/core/error.h"
#include "bonsai/framework/core/memory.h"
#include "bonsai/framework/core/rng.h"

namespace bonsai {
namespace {

constexpr const char* kWhere = "data";

void check_batch_size(int64_t batch_size) {
  check(batch_size >= 1, kWhere, "batch_size must be at least 1, got {}", batch_size);
}

}  // namespace

Batcher::Batcher(std::string name, std::vector<int32_t> tokens, int64_t block_size, int64_t vocab_size,
                 Rest rest)
    : name_(std::move(name)), tokens_(std::move(tokens)), block_size_(block_size), rest_(rest) {
  check(block_size >= 1, kWhere, "block_size must be at least 1, got {}", block_size);
  if (rest == Rest::padded)
    check(tokens_.size() >= 2, kWhere, "the {} has {} tokens; at least two are needed", name_,
          tokens_.size());
  else
    check(
        windows() >= 1, kWhere,
        "the {} split has {} tokens; block_size {} needs at least {}: provide more text or lower block_size",
        name_, tokens_.size(), block_size, static_cast<uint64_t>(block_size) + 1);
  check_ids("the " + name_ + " split", tokens_, vocab_size);
}

std::string Batcher::identity() const {
  Checksum checksum;
  checksum.add(tokens_.data(), tokens_.size() * sizeof(int32_t));
  return fmt::format("{} tokens, checksum {}", tokens_.size(), checksum.text());
}

Batch Batcher::random(const BatchIndex& index, int64_t batch_size) const {
  check_batch_size(batch_size);
  check(index.step >= 0 && index.step < int64_t{1} << 32 && index.micro_batch >= 0 &&
            index.micro_batch < 1 << 16 && index.first_row >= 0,
        kWhere, "the batch index is out of range: step {}, micro-batch {}, first row {}", index.step,
        index.micro_batch, index.first_row);
  RandomStream stream{index.seed, static_cast<uint32_t>(index.step),
                      static_cast<uint16_t>(index.micro_batch)};
  const RandomKey key = stream.draw("data.batch");
  std::vector<int64_t, PoolAllocator<int64_t>> starts(static_cast<size_t>(batch_size));
  for (size_t row = 0; row < starts.size(); ++row) {
    const double u = random_uniform(key, static_cast<uint64_t>(index.first_row) + row);
    starts[row] = static_cast<int64_t>(u * static_cast<double>(windows()));
  }
  return at(starts);
}

Batch Batcher::at(std::span<const int64_t> starts) const {
  const Shape shape{static_cast<int64_t>(starts.size()), block_size_};
  Batch batch{empty(shape, DType::i32), empty(shape, DType::i32)};
  int32_t* input = batch.inputs.mutable_span<int32_t>().data();
  int32_t* target = batch.targets.mutable_span<int32_t>().data();
  const int64_t places = rest_ == Rest::padded ? tokens() - 1 : windows();
  for (const int64_t start : starts) {
    check(start >= 0 && start < places, kWhere, "the {} split has no window at {}; the last begins at {}",
          name_, start, places - 1);
    const int64_t length = std::min(block_size_, tokens() - 1 - start);
    input = std::fill_n(std::copy_n(tokens_.data() + start, length, input), block_size_ - length, 0);
    target =
        std::fill_n(std::copy_n(tokens_.data() + start + 1, length, target), block_size_ - length, kIgnore);
  }
  return batch;
}

int64_t Batcher::evaluation_batches(int64_t batch_size) const {
  check_batch_size(batch_size);
  return (blocks() - 1) / batch_size + 1;
}

Batch Batcher::evaluation(int64_t index, int64_t batch_size) const {
  const int64_t batches = evaluation_batches(batch_size);
  check(index >= 0 && index < batches, kWhere,
        "the {} split has no evaluation batch {}; it has {} of {} blocks", name_, index, batches, batch_size);
  const int64_t first = index * batch_size;
  std::vector<int64_t> starts(static_cast<size_t>(std::min(batch_size, blocks() - first)));
  for (size_t row = 0; row < starts.size(); ++row)
    starts[row] = (first + static_cast<int64_t>(row)) * block_size_;
  return at(starts);
}

}  // namespace bonsai
