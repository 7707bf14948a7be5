// record(): how an op reports that it computed y from its inputs, and how to compute their gradients.
//
//   return record("scale", {x}, y, /*saved=*/{}, Args{factor},
//                 [](Tensor dy, Saved&, Sink&, Args args) -> Grads { return {scaled(dy, args.factor)}; });
//
// The backward function captures nothing, so it cannot hold memory or dangling references. Plain values
// go through `args`. Tensors go through `saved`, where they are counted, checked for later in-place
// changes, and freed once the backward pass has used them.
#pragma once

#include <array>
#include <bit>
#include <cstring>

#include "bonsai/framework/autograd/tape.h"

namespace bonsai {

// y, recorded on the open tape if a gradient would reach one of the inputs.
template <class Args, class F>
Tensor record(const char* op, std::span<const TensorRef> inputs, const Tensor& y,
              std::span<const TensorRef> saved, const Args& args, F) {
  static_assert(std::is_empty_v<F>,
                "the backward function captures nothing: plain values go in args, tensors in saved");
  static_assert(std::is_trivially_copyable_v<Args> && sizeof(Args) <= kMaxArgs,
                "args are plain values of at most 128 bytes");
  if (OpWatcher* watcher = OpWatcher::active()) [[unlikely]]
    watcher->result(op, inputs, y);
  Tape* tape = Tape::active();
  if (!tape || !tape->wants(inputs)) return y.detach();
  const Backward backward = [](Tensor dy, Saved& s, Sink& sink, const std::byte* bytes) -> Grads {
    std::array<std::byte, sizeof(Args)> raw;
    std::memcpy(raw.data(), bytes, sizeof(Args));
    return F{}(std::move(dy), s, sink, std::bit_cast<Args>(raw));
  };
  return tape->push(op, inputs, y, saved, &args, sizeof(Args), backward);
}

// The same for lists in braces.
template <class Args, class F>
Tensor record(const char* op, Refs inputs, const Tensor& y, Refs saved, const Args& args, F f) {
  return record(op, std::span<const TensorRef>(inputs), y, std::span<const TensorRef>(saved), args, f);
}

// True if y will be recorded, so that the op must compute what only its backward function needs.
inline bool recording(Refs inputs) {
  Tape* tape = Tape::active();
  return tape && tape->wants(inputs);
}

}  // namespace bonsai
