#include "bonsai/framework/autograd/tape.h"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "bonsai/framework/autograd/dispatch.h"

namespace bonsai {
namespace {

thread_local Tape* innermost = nullptr;

// The tapes whose backward pass has not run. Consulted only when an op gets a tensor of another tape.
class TapeRegister {
 public:
  uint64_t enter() {
    std::lock_guard lock(mutex_);
    unspent_.push_back(++last_);
    return last_;
  }
  void spend(uint64_t id) {
    std::lock_guard lock(mutex_);
    if (const auto at = find(id); at != unspent_.end()) unspent_.erase(at);
  }
  bool spent(uint64_t id) {
    std::lock_guard lock(mutex_);
    return find(id) == unspent_.end();
  }

 private:
  std::vector<uint64_t>::iterator find(uint64_t id) {
    const auto at = std::lower_bound(unspent_.begin(), unspent_.end(), id);
    return at != unspent_.end() && *at == id ? at : unspent_.end();
  }

  std::mutex mutex_;
  uint64_t last_ = 0;              // id 0 means no tape
  std::vector<uint64_t> unspent_;  // ascending
};

TapeRegister& tapes() {
  static TapeRegister r;
  return r;
}

void add_into(const Tensor& from, Tensor& to) { kernels(from).accumulate(view(from), mut(to)); }

Tensor& gradient_of(Parameter& p) {
  if (!p.grad) p.grad = empty_like(p.value);
  return p.grad;
}

}  // namespace

const Tensor& Saved::operator[](int i) const {
  const SavedTensor& s = tensors_[static_cast<size_t>(i)];
  check(!s.tensor || s.tensor.storage()->version == s.version, op_,
        "{} was changed in place after the forward pass, which needs its old value for the gradient; "
        "change a copy() instead",
        s.tensor);
  return s.tensor;
}

Tensor Saved::take(int i) {
  (*this)[i];
  Tensor& tensor = tensors_[static_cast<size_t>(i)].tensor;
  return keep_ ? tensor : std::move(tensor);
}

Sink::Into Sink::into(int i) {
  const int32_t s = slots_[static_cast<size_t>(i)];
  if (s < 0) return {};
  check(!asked(static_cast<size_t>(i)), "sink",
        "an op may ask for the running gradient of an input only once");
  asked_ |= uint64_t{1} << i;
  Tape::Slot& slot = tape_.slots_[static_cast<size_t>(s)];
  if (apart_) return {(*apart_)[static_cast<size_t>(i)] = empty(slot.shape, slot.dtype, slot.device), false};
  if (Parameter* p = slot.parameter) {
    const bool again = std::find(written_, written_ + writes_, p) != written_ + writes_;
    check(writes_ < kMax, "sink", "an op may ask for at most {} running gradients", kMax);
    written_[writes_++] = p;
    return {gradient_of(*p), again || p->contributions > 0};
  }
  if (!slot.grad) {
    slot.grad = empty(slot.shape, slot.dtype, slot.device);
    slot.own = true;
    return {slot.grad, false};
  }
  if (!slot.own && !slot.grad.sole_owner()) slot.grad = slot.grad.copy();
  slot.own = true;
  return {slot.grad, true};
}

void Sink::count() {
  for (int i = 0; i < writes_; ++i) ++written_[i]->contributions;
}

GradView grad_view(Sink::Into& into) {
  if (!into) return {};
  return {into.grad.mutable_data(), into.add};
}

struct Tape::Spare {
  explicit Spare(bool& gone) : gone(gone) {}
  ~Spare() { gone = true; }
  std::vector<Node> nodes;
  std::vector<Slot> slots;
  std::vector<int32_t> input_slots;
  std::vector<SavedTensor> saved;
  std::vector<std::byte> args;
  std::vector<std::pair<Parameter*, int32_t>> parameter_slots;
  bool& gone;
};

void Tape::swap_lists() {
  thread_local bool gone = false;  // set when the thread ends and `spare` is destroyed
  thread_local Spare spare(gone);
  if (gone) return;
  nodes_.swap(spare.nodes), slots_.swap(spare.slots), input_slots_.swap(spare.input_slots);
  saved_.swap(spare.saved), args_.swap(spare.args), parameter_slots_.swap(spare.parameter_slots);
}

Tape::Tape(Start start) : id_(tapes().enter()) {
  swap_lists();
  if (start == Start::open) open();
}

Tape::~Tape() {
  if (unlink()) {
    nodes_.clear(), slots_.clear(), input_slots_.clear(), saved_.clear(), args_.clear(),
        parameter_slots_.clear();
    swap_lists();
    return;
  }
  std::fputs("[tape] destroyed on another thread than the one that opened it\n", stderr);
  std::abort();
}

void Tape::open() {
  check(!spent_, "tape", "this tape's backward pass has run; record on a new one");
  check(!open_ || holds(), "tape", "open() was called on another thread while it is open");
  if (open_) return;
  open_ = true;
  previous_ = innermost;
  innermost = this;
}

void Tape::close() {
  check(unlink(), "tape", "close() was called on another thread than open()");
}

bool Tape::holds() const {
  const Tape* at = innermost;
  while (at && at != this) at = at->previous_;
  return at != nullptr;
}

// Returns false if the tape is open on another thread.
bool Tape::unlink() {
  if (!open_) return true;
  Tape** link = &innermost;
  while (*link && *link != this) link = &(*link)->previous_;
  if (!*link) return false;
  *link = previous_;
  open_ = false;
  return true;
}

Tape* Tape::active() { return innermost; }

int32_t Tape::new_slot(const Tensor& x, Parameter* parameter, bool leaf) {
  slots_.push_back({x.shape(), x.dtype(), x.device(), parameter, leaf, {}, false});
  return static_cast<int32_t>(slots_.size()) - 1;
}

int32_t Tape::slot_of(const Tensor& x) {
  if (!x) return -1;
  if (Parameter* p = x.parameter()) {
    if (!p->trainable) return -1;
    auto at = std::lower_bound(parameter_slots_.begin(), parameter_slots_.end(),
                               std::pair{p, int32_t{-1}});
    if (at == parameter_slots_.end() || at->first != p)
      at = parameter_slots_.insert(at, {p, new_slot(x, p, true)});
    return at->second;
  }
  if (x.link().tape == 0) return -1;
  if (x.link().tape == id_) return x.link().slot;
  check(tapes().spent(x.link().tape), "tape",
        "an input {} was recorded on another tape, so its gradient would be lost; use detach() to "
        "treat it as a plain value",
        x);
  return -1;
}

Tensor Tape::watch(const Tensor& x) {
  check(x && is_floating(x.dtype()), "watch", "only floating tensors have gradients, got {}", x);
  const Tensor plain = x.detach();
  return plain.with_link({id_, new_slot(plain, nullptr, true)});
}

bool Tape::tracks(const Tensor& x) { return slot_of(x) >= 0; }

bool Tape::wants(std::span<const TensorRef> inputs) {
  bool any = false;
  for (const Tensor& x : inputs) any |= slot_of(x) >= 0;
  return any;
}

Tensor Tape::push(const char* op, std::span<const TensorRef> inputs, const Tensor& y,
                  std::span<const TensorRef> saved, const void* args, size_t args_size,
                  Backward backward) {
  const auto count = [](const auto& v) { return static_cast<uint32_t>(v.size()); };
  Node node{op, PathScope::current(), backward, {count(input_slots_), count(inputs)},
            {count(saved_), count(saved)}, count(args_), -1, false};
  for (const Tensor& x : inputs) input_slots_.push_back(slot_of(x));
  for (const Tensor& x : saved)
    saved_.push_back({x ? x.with_parameter(x.parameter()) : x,
                      x ? x.storage()->version : 0});
  args_.resize(args_.size() + (args_size + 15) / 16 * 16);
  std::memcpy(args_.data() + node.args, args, args_size);
  node.output = new_slot(y, nullptr, false);
  nodes_.push_back(node);
  return y.with_link({id_, node.output});
}

void Tape::backward(const Tensor& y) {
  check(y && y.elements() == 1, "backward",
        "needs a tensor with one element, got {}; pass dy for a larger tensor", y);
  backward(y, full(y.shape(), 1, y.dtype(), y.device()));
}

void Tape::backward(const Tensor& y, const Tensor& dy, bool keep) {
  check(!spent_, "backward",
        "this tape's backward pass has already run; to run another, pass keep = true to the first");
  check(y.link().tape == id_, "backward", "{} was not recorded on this tape", y);
  check(dy && dy.shape() == y.shape() && dy.dtype() == y.dtype() && dy.device() == y.device(), "backward",
        "dy must have the shape, dtype and device of y, {}; got {}", y, dy);
  close();
  if (!keep) {
    spent_ = true;
    tapes().spend(id_);
  }
  // Ops inside backward functions must not record on any tape of this thread.
  struct Suspend {
    Tape* waiting = std::exchange(innermost, nullptr);
    ~Suspend() { innermost = waiting; }
  } suspend;
  for (Slot& slot : slots_) slot.grad = {}, slot.own = false;
  slots_[static_cast<size_t>(y.link().slot)].grad = dy.detach();
  for (size_t i = nodes_.size(); i-- > 0;) run(nodes_[i], keep);
  if (!keep) {
    saved_.clear();
    args_.clear();
  }
}

void Tape::run(Node& node, bool keep) {
  const std::span saved(saved_.data() + node.saved.begin, node.saved.count);
  Slot& output = slots_[static_cast<size_t>(node.output)];
  Tensor dy = keep ? output.grad : std::move(output.grad);
  node.reached = static_cast<bool>(dy);
  if (dy) {
    static const std::string nowhere;
    PathScope path(node.path ? *node.path : nowhere);
    const std::span<const int32_t> slots(input_slots_.data() + node.inputs.begin, node.inputs.count);
    Saved access(node.op, saved, slots, keep);
    OpWatcher* watcher = OpWatcher::active();
    const auto number = static_cast<size_t>(&node - nodes_.data());
    if (watcher) {
      std::vector<Tensor> kept;
      for (const SavedTensor& t : saved) kept.push_back(t.tensor);
      watcher->upstream(node.op, number, dy, kept);
    }
    Grads apart(watcher && watcher->replaces() ? slots.size() : 0);
    Sink sink(*this, slots, apart.empty() ? nullptr : &apart);
    Grads grads = node.backward(std::move(dy), access, sink, args_.data() + node.args);
    check(grads.size() <= slots.size(), node.op, "backward returned {} gradients for {} inputs",
          grads.size(), slots.size());
    sink.count();
    if (watcher) {
      grads.resize(slots.size());
      for (size_t i = 0; i < slots.size(); ++i) {
        if (slots[i] < 0) continue;
        if (!apart.empty() && apart[i]) grads[i] = apart[i];
        const Slot& slot = slots_[static_cast<size_t>(slots[i])];
        Tensor running =
            !grads[i] && sink.asked(i) ? (slot.parameter ? slot.parameter->grad : slot.grad) : Tensor();
        Tensor& given = running ? running : grads[i];
        if (given) watcher->gradient(node.op, number, i, given);
      }
      watcher->done();
    }
    for (size_t i = 0; i < grads.size(); ++i) contribute(node, i, std::move(grads[i]));
  }
  if (!keep)
    for (SavedTensor& s : saved) s.tensor = {};
}

void Tape::contribute(const Node& node, size_t input, Tensor grad) {
  const int32_t s = input_slots_[node.inputs.begin + input];
  if (s < 0 || !grad) return;
  Slot& slot = slots_[static_cast<size_t>(s)];
  check(grad.shape() == slot.shape && grad.dtype() == slot.dtype, node.op,
        "backward returned {} for input {}, which is {}{}", grad, input, name_of(slot.dtype),
        slot.shape);
  if (Parameter* p = slot.parameter) {
    p->contributions ? add_into(grad, p->grad) : copy_into(grad, gradient_of(*p));
    ++p->contributions;
  } else if (!slot.grad) {
    slot.grad = std::move(grad);
  } else {
    if (!slot.grad.sole_owner()) slot.grad = slot.grad.copy();
    add_into(grad, slot.grad);
  }
}

Tensor Tape::gradient(const Tensor& x) {
  if (Parameter* p = x.parameter())
    return p->contributions ? p->grad : zeros_like(p->value);
  check(x.link().tape == id_ && slots_[static_cast<size_t>(x.link().slot)].leaf, "gradient",
        "{} is not a tensor that watch() of this tape returned", x);
  Tensor& grad = slots_[static_cast<size_t>(x.link().slot)].grad;
  if (!grad) grad = zeros_like(x.detach());
  if (!grad.sole_owner()) grad = grad.copy();  // the caller may write into it
  return grad;
}

std::vector<Tape::Entry> Tape::entries() const {
  std::vector<Entry> all;
  for (const Node& node : nodes_) {
    size_t bytes = 0;
    for (uint32_t i = 0; i < node.saved.count && node.saved.begin + i < saved_.size(); ++i)
      if (const Tensor& t = saved_[node.saved.begin + i].tensor)
        bytes += static_cast<size_t>(t.elements()) * size_of(t.dtype());
    const auto* inputs = input_slots_.data() + node.inputs.begin;
    all.push_back({node.op, node.path, {inputs, inputs + node.inputs.count}, bytes, node.reached, {}});
    for (uint32_t i = 0; i < node.inputs.count; ++i)
      if (const int32_t s = input_slots_[node.inputs.begin + i]; s >= 0)
        if (const Parameter* p = slots_[static_cast<size_t>(s)].parameter)
          all.back().parameters.push_back(p);
  }
  return all;
}

}  // namespace bonsai
