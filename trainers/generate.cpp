#include "trainers/generate.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace bonsai {

int32_t choose_token(std::span<const double> logits, const GenerateOptions& o, uint64_t index) {
  check(o.temperature >= 0 && std::isfinite(o.temperature), "generate", "the temperature is {}; it must be at least 0",
        o.temperature);
  check(o.top_k >= 0, "generate", "top_k is {}; it must be at least 0", o.top_k);
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto likelier = [&](int32_t a, int32_t b) {
    const double x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  };
  const size_t kept = o.top_k > 0 ? std::min(order.size(), static_cast<size_t>(o.top_k)) : order.size();
  std::partial_sort(order.begin(), order.begin() + static_cast<int64_t>(kept), order.end(), likelier);
  order.resize(kept);
  // So small a temperature would overflow what it divides; the most likely token has all the weight.
  if (o.temperature < 1e-6) return order[0];
  std::vector<double> weights;
  double total = 0;
  for (int32_t id : order)
    weights.push_back(total += std::exp((logits[static_cast<size_t>(id)] - logits[static_cast<size_t>(order[0])]) / o.temperature));
  const double at = random_uniform(random_key(o.seed, "generate"), index) * total;
  const auto chosen = std::upper_bound(weights.begin(), weights.end(), at) - weights.begin();
  return order[std::min(static_cast<size_t>(chosen), order.size() - 1)];
}

std::vector<int32_t> generate(Decoder& model, std::vector<int32_t> ids, int64_t count, const GenerateOptions& options,
                              const std::function<bool(int32_t)>& go_on) {
  check(!ids.empty(), "generate", "needs at least one token to begin with");
  const int64_t vocabulary = model.config().vocab_size, block = model.config().block_size;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t seen = std::min(block, static_cast<int64_t>(ids.size()));
    Context context;
    const std::span<const int32_t> window(ids.end() - seen, ids.end());
    const std::vector<double> logits = model(from<int32_t>({1, seen}, window), context).values();
    ids.push_back(choose_token(std::span(logits).last(static_cast<size_t>(vocabulary)), options, static_cast<uint64_t>(i)));
    if (go_on && !go_on(ids.back())) break;
  }
  return ids;
}

}  // namespace bonsai
