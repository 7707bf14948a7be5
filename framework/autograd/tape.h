// The tape: while one is open, ops record themselves; backward() walks the record from the end.
//
//   Tape tape;                          // opens it: this thread's ops record on it
//   Tensor x = tape.watch(input);       // a leaf whose gradient is wanted
//   Tensor loss = ...;
//   tape.backward(loss);                // parameters now hold their gradients
//   tape.gradient(x);
//
// The modules whose parameters were used must live until the backward pass is done.
//
// Nodes lie in one vector and refer to slots by index: there is no recursion and no sorting, and freeing
// a long graph means freeing a vector. Without an open tape nothing is recorded, so inference needs no guard.
#pragma once

#include <cstddef>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "bonsai/framework/autograd/watch.h"
#include "bonsai/framework/core/parameter.h"
#include "bonsai/framework/core/tensor.h"

namespace bonsai {

class Tape;
// One gradient per input. An undefined one means zero, or that the op wrote it through the sink.
using Grads = std::vector<Tensor, PoolAllocator<Tensor>>;
using Refs = std::initializer_list<TensorRef>;

struct NoArgs {};
inline constexpr size_t kMaxArgs = 128;

// A tensor saved for the backward pass, with the version that its storage had.
struct SavedTensor {
  Tensor tensor;
  uint32_t version;
};

// The tensors that an op saved. Accessing one throws if it has been changed in place since.
class Saved {
 public:
  Saved(const char* op, std::span<SavedTensor> tensors, std::span<const int32_t> slots, bool keep)
      : op_(op), tensors_(tensors), slots_(slots), keep_(keep) {}

  const Tensor& operator[](int i) const;
  // Moves the tensor out, so that a sole owner may write into it; if the tape is kept, returns another
  // handle.
  Tensor take(int i);
  bool needs(int i) const { return slots_[static_cast<size_t>(i)] >= 0; }  // is input i's gradient needed

 private:
  const char* op_;
  std::span<SavedTensor> tensors_;
  std::span<const int32_t> slots_;
  bool keep_;
};

// Gives an op the running gradient of an input, for gradients that are large or cover only a part of it:
// the op writes there, or adds to it if `add` is true, and returns an undefined gradient for that input.
class Sink {
 public:
  struct Into {
    Tensor grad;  // undefined if not needed
    bool add = false;
    explicit operator bool() const { return static_cast<bool>(grad); }
  };
  // If a watcher replaces gradients, the op writes to tensors in `apart` instead of the running gradients.
  Sink(Tape& tape, std::span<const int32_t> slots, Grads* apart)
      : tape_(tape), slots_(slots), apart_(apart) {}
  Into into(int i);
  void count();  // counts the contributions to parameters, after the op has written them
  bool asked(size_t i) const { return asked_ >> i & 1; }

 private:
  static constexpr int kMax = 4;
  Tape& tape_;
  std::span<const int32_t> slots_;
  Grads* apart_;
  uint64_t asked_ = 0;  // one bit per input
  Parameter* written_[kMax] = {};
  int writes_ = 0;
};

// The kernel's view of a running gradient.
GradView grad_view(Sink::Into& into);

using Backward = Grads (*)(Tensor dy, Saved& saved, Sink& sink, const std::byte* args);

class Tape {
 public:
  enum class Start { open, closed };

  explicit Tape(Start start = Start::open);
  ~Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  // Start and stop recording on this thread. A tape that was open before pauses until this one closes.
  void open();
  void close();
  static Tape* active();  // null if no tape records

  Tensor watch(const Tensor& x);  // x as a leaf of this tape
  bool tracks(const Tensor& x);   // whether a gradient would reach x

  // Adds to the gradients of parameters and overwrites those of watched tensors. The first form requires a
  // one-element y and uses dy = 1. Both close the tape. Unless `keep` is true, the tape cannot be used again
  // and its tensors become plain values. Backward functions themselves are not recorded.
  void backward(const Tensor& y);
  void backward(const Tensor& y, const Tensor& dy, bool keep = false);

  // The gradient of a watched tensor or a parameter's value; zeros if y did not depend on it. The gradients
  // of other tensors are freed during the backward pass.
  Tensor gradient(const Tensor& x);

  // A recorded op, for reports and tests.
  struct Entry {
    const char* op;
    const std::string* path;  // the layer; null outside of any layer
    std::vector<int32_t> inputs;  // slots, as in Tensor::link(); -1 for plain values
    size_t saved_bytes;
    bool reached;  // the last backward pass reached it
    std::vector<const Parameter*> parameters;  // among its inputs
  };
  // All recorded ops, in order.
  std::vector<Entry> entries() const;
  size_t size() const { return nodes_.size(); }

  // For record() only.
  bool wants(std::span<const TensorRef> inputs);
  Tensor push(const char* op, std::span<const TensorRef> inputs, const Tensor& y,
              std::span<const TensorRef> saved, const void* args, size_t args_size,
              Backward backward);

 private:
  friend class Sink;

  struct Range {
    uint32_t begin, count;
  };
  struct Node {
    const char* op;
    const std::string* path;
    Backward backward;
    Range inputs, saved;
    uint32_t args;
    int32_t output;
    bool reached;
  };
  struct Slot {
    Shape shape;
    DType dtype;
    Device device;
    Parameter* parameter;  // null unless it is a parameter's
    bool leaf;             // watched, or a parameter: its gradient is kept
    Tensor grad;
    bool own = false;      // a sink allocated the gradient: no other tensor shares its elements
  };

  // The vectors of this thread's last destroyed tape, which the next tape reuses with their capacity.
  struct Spare;
  void swap_lists();

  bool holds() const;  // whether it is open on this thread
  bool unlink();
  int32_t slot_of(const Tensor& x);
  int32_t new_slot(const Tensor& x, Parameter* parameter, bool leaf);
  void run(Node& node, bool keep);
  void contribute(const Node& node, size_t input, Tensor grad);

  uint64_t id_;
  Tape* previous_ = nullptr;
  bool open_ = false, spent_ = false;
  std::vector<Node> nodes_;
  std::vector<Slot> slots_;
  std::vector<int32_t> input_slots_;
  std::vector<SavedTensor> saved_;
  std::vector<std::byte> args_;
  std::vector<std::pair<Parameter*, int32_t>> parameter_slots_;  // sorted by address
};

}  // namespace bonsai
