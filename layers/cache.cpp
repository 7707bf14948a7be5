#include "bonsai/layers/cache.h"

#include <algorithm>

#include "bonsai/framework/autograd/tape.h"
#include "bonsai/framework/ops/axes.h"
#include "bonsai/framework/ops/ops.h"

namespace bonsai {
namespace {

// An empty (B,capacity,width) for x (B,T,width).
Tensor room_for(const Tensor& x, int64_t capacity) {
  return zeros({x.size(0), capacity, x.size(2)}, x.dtype(), x.device());
}

// Copies x (B,T,width) to rows [at, at + T) of every batch entry of `all`.
void put(Tensor& all, const Tensor& x, int64_t at) {
  for (int64_t b = 0; b < x.size(0); ++b) {
    const int64_t width = x.size(2);
    Tensor rows = all.alias({x.size(1), width}, (b * all.size(1) + at) * width);
    copy_into(x.alias({x.size(1), width}, b * x.size(1) * width), rows);
  }
}

}  // namespace

int64_t KeyValueCache::length() const {
  int64_t least = entries_.empty() ? 0 : capacity_;
  for (const auto& [path, entry] : entries_) least = std::min(least, entry.length);
  return least;
}

int64_t KeyValueCache::length(const std::string& path) const {
  const auto at = entries_.find(path);
  return at == entries_.end() ? 0 : at->second.length;
}

void KeyValueCache::clear() {
  for (auto& [path, entry] : entries_) entry.length = 0;
  sources_.clear();
}

std::pair<Tensor, Tensor> KeyValueCache::source(const std::string& path,
                                                const std::function<std::pair<Tensor, Tensor>()>& make) {
  check(!Tape::active(), "cache", "keys and values cannot be cached while a tape records");
  auto at = sources_.find(path);
  if (at == sources_.end()) at = sources_.emplace(path, make()).first;
  return at->second;
}

std::pair<Tensor, Tensor> KeyValueCache::append(const std::string& path, const Tensor& keys,
                                                const Tensor& values) {
  check(!Tape::active(), "cache", "keys and values cannot be cached while a tape records");
  check_axes("cache", "keys", keys, "(batch,time,channels)");
  check_axes("cache", "values", values, "(batch,time,channels)");
  check(keys.size(0) == values.size(0) && keys.size(1) == values.size(1), "cache",
        "keys and values do not belong together: {} and {}", keys, values);
  Entry& e = entries_[path];
  if (!e.keys || e.length == 0) {
    if (!e.keys || e.keys.size(0) != keys.size(0))
      e.keys = room_for(keys, capacity_), e.values = room_for(values, capacity_);
  }
  check(e.keys.size(0) == keys.size(0) && e.keys.size(2) == keys.size(2), "cache", "{} does not continue {}",
        keys, e.keys);
  check(e.length + keys.size(1) <= capacity_, "cache", "{} tokens and {} more exceed its capacity of {}",
        e.length, keys.size(1), capacity_);
  put(e.keys, keys, e.length), put(e.values, values, e.length);
  e.length += keys.size(1);
  return {slice(e.keys, 1, 0, e.length), slice(e.values, 1, 0, e.length)};
}

}  // namespace bonsai
