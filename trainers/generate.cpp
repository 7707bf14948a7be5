#include "bonsai/trainers/generate.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "bonsai/framework/ops/axes.h"
#include "bonsai/framework/ops/ops.h"
#include "bonsai/layers/cache.h"

namespace bonsai {

namespace {

Context reading(Model& model, const Source& source) {
  Context context;
  const Device device = model.build().device;
  context.source = {source.ids.to(device), source.features.to(device), source.padding_mask.to(device),
                    source.segment_ids.to(device)};
  if (model.reads_source()) context.source.features = model.encode(context);
  return context;
}

// Input ids (rows,time) of a pass: the rows from token `begin` on.
Tensor tokens_from(const std::vector<std::vector<int32_t>>& rows, int64_t begin, Device device) {
  std::vector<int32_t> ids;
  for (const auto& row : rows) ids.insert(ids.end(), row.begin() + begin, row.end());
  const auto count = static_cast<int64_t>(rows.size());
  return from<int32_t>({count, static_cast<int64_t>(ids.size()) / count}, ids, device);
}

// A logit may be -infinity, which excludes the token. NaN and +infinity are errors.
void check_logits(const char* who, std::span<const double> logits) {
  check(std::none_of(logits.begin(), logits.end(), [](double v) { return std::isnan(v) || v == INFINITY; }),
        who, "the model gives logits that are not finite; it has diverged, use an earlier checkpoint");
}

}  // namespace

int32_t choose_token(std::span<const double> logits, const GenerateOptions& o, uint64_t index) {
  check(o.temperature >= 0 && std::isfinite(o.temperature), "generate",
        "the temperature is {}; it must be at least 0", o.temperature);
  check(o.top_k >= 0, "generate", "top_k is {}; it must be at least 0", o.top_k);
  check(o.top_p > 0 && o.top_p <= 1, "generate", "top_p is {}; it must be above 0 and at most 1", o.top_p);
  check(o.min_p >= 0 && o.min_p <= 1, "generate", "min_p is {}; it must be from 0 to 1", o.min_p);
  check_logits("generate", logits);
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto likelier = [&](int32_t a, int32_t b) {
    const double x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  };
  const size_t kept = o.top_k > 0 ? std::min(order.size(), static_cast<size_t>(o.top_k)) : order.size();
  std::partial_sort(order.begin(), order.begin() + static_cast<int64_t>(kept), order.end(), likelier);
  order.resize(kept);
  // Dividing by a smaller temperature could overflow; the most likely token has all the weight anyway.
  if (o.temperature < 1e-6) return order[0];
  std::vector<double> weights;
  double total = 0;
  for (const int32_t id : order) {
    weights.push_back(
        std::exp((logits[static_cast<size_t>(id)] - logits[static_cast<size_t>(order[0])]) / o.temperature));
    total += weights.back();
  }
  // The weights are in descending order, so top_p and min_p keep a prefix.
  double kept_weight = 0;
  size_t left = 0;
  while (left < weights.size() && (left == 0 || (kept_weight < o.top_p * total && weights[left] >= o.min_p)))
    kept_weight += weights[left++];
  double at = random_uniform(random_key(o.seed, "generate"), index) * kept_weight;
  for (size_t i = 0; i < left; ++i)
    if ((at -= weights[i]) < 0) return order[i];
  return order[left - 1];
}

std::vector<int32_t> generate(Model& model, std::vector<int32_t> ids, int64_t count,
                              const GenerateOptions& options, const std::function<bool(int32_t)>& go_on,
                              const Source& source, const Poll& poll) {
  check(!ids.empty(), "generate", "needs at least one token to begin with");
  const auto vocabulary = static_cast<size_t>(model.vocab_size());
  const int64_t block = model.block_size();
  KeyValueCache cache(std::min(block, static_cast<int64_t>(ids.size()) + count));
  const Context start = reading(model, source);
  for (int64_t i = 0; i < count; ++i) {
    poll();
    const auto all = static_cast<int64_t>(ids.size());
    Context context = start;
    const bool cached = model.cacheable() && all <= block;
    if (cached) context.cache = &cache, context.first_position = cache.length();
    const int64_t begin = cached ? cache.length() : std::max<int64_t>(0, all - block);
    const std::vector<double> logits =
        model.last_logits(tokens_from({ids}, begin, model.build().device), context).values();
    check(logits.size() == vocabulary, "generate", "the model gave {} logits for {} tokens", logits.size(),
          vocabulary);
    ids.push_back(choose_token(logits, options, static_cast<uint64_t>(i)));
    if (go_on && !go_on(ids.back())) break;
  }
  return ids;
}

std::vector<std::vector<int32_t>> greedy(Model& model, const Tensor& ids, int64_t count,
                                         const Source& source, const Poll& poll) {
  check_axes("greedy", "ids", ids, "(batch,time)");
  check(ids.elements() > 0, "greedy", "needs rows of at least one token to begin with, got {}", ids);
  const int64_t rows = ids.size(0), vocabulary = model.vocab_size(), block = model.block_size();
  check(count <= block + 1 - ids.size(1), "greedy", "{} tokens after {} do not fit block_size {}", count,
        ids.size(1), block);
  const Tensor prompt = ids.to(Device{});
  std::vector<std::vector<int32_t>> all;
  for (int64_t r = 0; r < rows; ++r) {
    const int32_t* row = prompt.span<int32_t>().data() + r * ids.size(1);
    all.emplace_back(row, row + ids.size(1));
  }
  KeyValueCache cache(ids.size(1) + count);
  Context context = reading(model, source);
  for (int64_t i = 0; i < count; ++i) {
    poll();
    if (model.cacheable()) context.cache = &cache, context.first_position = cache.length();
    const std::vector<double> logits =
        model.last_logits(tokens_from(all, context.first_position, model.build().device), context).values();
    check_logits("greedy", logits);
    for (int64_t r = 0; r < rows; ++r) {
      const auto row = logits.begin() + r * vocabulary, most = std::max_element(row, row + vocabulary);
      all[static_cast<size_t>(r)].push_back(static_cast<int32_t>(most - row));
    }
  }
  for (auto& row : all) row.erase(row.begin(), row.begin() + ids.size(1));
  return all;
}

}  // namespace bonsai
