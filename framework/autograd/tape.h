// The tape: ops record themselves while one is open; backward walks the record from the end.
//
//   Tape tape;                          // opens: this thread's ops record on it
//   Tensor x = tape.watch(input);       // a leaf whose gradient is wanted
//   Tensor loss = ...;
//   tape.backward(loss);                // parameters now hold their gradients
//   tape.gradient(x);
//
// The modules whose parameters were used must live until the backward pass is done.
//
// Nodes lie in one vector and refer to slots by number: no recursion, no sorting, and freeing a long
// graph is freeing a vector. Without an open tape nothing is recorded, so inference needs no guard.
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
using Grads = std::vector<Tensor, PoolAllocator<Tensor>>;  // one an input; undefined means zero, or given to the sink
using Refs = std::initializer_list<TensorRef>;

struct NoArgs {};
inline constexpr size_t kMaxArgs = 128;

// A tensor kept for the backward pass, with the version it had.
struct SavedTensor {
  Tensor tensor;
  uint32_t version;
};

// What an op kept. Access fails where the tensor was changed in place since.
class Saved {
 public:
  Saved(const char* op, std::span<SavedTensor> tensors, std::span<const int32_t> slots, bool keep)
      : op_(op), tensors_(tensors), slots_(slots), keep_(keep) {}

  const Tensor& operator[](int i) const;
  Tensor take(int i);  // moved out, so that a sole owner may write into it; copied while kept
  bool needs(int i) const { return slots_[static_cast<size_t>(i)] >= 0; }  // is input i's gradient wanted

 private:
  const char* op_;
  std::span<SavedTensor> tensors_;
  std::span<const int32_t> slots_;
  bool keep_;
};

// The running gradient of an input, for results that are large or partial: the op writes there, or
// adds if something is there already, and returns nothing for that input.
class Sink {
 public:
  struct Into {
    Tensor grad;  // undefined: not wanted
    bool add = false;
    explicit operator bool() const { return static_cast<bool>(grad); }
  };
  // Where a watcher replaces gradients, what the op gives is set `apart` first.
  Sink(Tape& tape, std::span<const int32_t> slots, Grads* apart) : tape_(tape), slots_(slots), apart_(apart) {}
  Into into(int i);
  void count();  // the contributions to parameters, once the op has written them
  bool asked(size_t i) const { return asked_ >> i & 1; }

 private:
  static constexpr int kMax = 4;
  Tape& tape_;
  std::span<const int32_t> slots_;
  Grads* apart_;
  uint64_t asked_ = 0;  // a bit an input
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

  // Recording by this thread; the tape that was open before waits until this one closes.
  void open();
  void close();
  static Tape* active();  // null: nothing records

  Tensor watch(const Tensor& x);            // x as a leaf of this tape
  bool tracks(const Tensor& x);             // would a gradient reach x

  // Adds to the gradients of parameters; those of watched tensors are this pass's. The first form is for
  // a tensor of one element. It closes the tape and, unless told to keep it, uses it up; after that its tensors are
  // plain values. Backward functions themselves are not recorded.
  void backward(const Tensor& y);
  void backward(const Tensor& y, const Tensor& dy, bool keep = false);

  // Of a watched tensor or a parameter's value; zeros where nothing depended on it. Gradients of
  // other tensors are freed as the scan passes.
  Tensor gradient(const Tensor& x);

  // What was recorded, for reports and tests.
  struct Entry {
    const char* op;
    const std::string* path;  // the layer, null outside every layer
    std::vector<int32_t> inputs;  // slots, as in Tensor::link(); -1 for plain values
    size_t saved_bytes;
    bool reached;  // by the last backward
    std::vector<const Parameter*> parameters;  // among its inputs
  };
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
    Parameter* parameter;  // null for anything but a parameter
    bool leaf;             // watched, or a parameter: its gradient stays
    Tensor grad;
    bool own = false;      // the gradient was made by a sink: no other tensor shares its elements
  };

  // The lists of the last tape of this thread that went: the next one need not grow them again.
  struct Spare;
  void swap_lists();

  bool holds() const;  // is it among this thread's open tapes
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
