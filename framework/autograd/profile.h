// Where a training step's time goes: every kernel, timed by a wrapper in this thread's kernel table, and the op
// that called it.
//
//   Profile profile(DType::f32);   // from here on this thread is profiled
//   profile.part("batch");
//   trainer.step(0);               // says itself when it goes on to its next part
//   profile.end_step();
//   profile.rows();
//
// A forward op runs from its first kernel until it is recorded, a backward op until it has given its gradients. The
// rest of a part is the row with no op: drawing the batch, or what the host does between two ops.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bonsai/framework/autograd/watch.h"
#include "bonsai/framework/backend/backend.h"

namespace bonsai {

class Profile final : public OpWatcher {
 public:
  // Floating-point operations of products and attention; bytes of the tensors that kernels were given, where their
  // arguments say how many.
  struct Work {
    double flops = 0, bytes = 0;
  };
  struct Row {
    std::string part, op;  // an empty op: outside ops
    int64_t calls = 0, ns = 0;
    Work work = {};
  };
  struct Event {
    enum Kind { part, op, kernel } kind;
    std::string name, layer;
    int64_t begin, end;  // ns on the steady clock
    Work work = {};
  };

  // Events are kept of the first `traced_steps`.
  explicit Profile(DType dtype, int64_t traced_steps = 0);
  ~Profile() override;

  void part(const char* name) override;
  void end_step();
  int64_t steps() const { return steps_; }
  int64_t ns() const { return ns_; }  // of all steps
  std::vector<Row> rows() const;      // their times add up to ns(); the longest first
  const std::vector<Event>& events() const { return events_; }

  void result(const char* op, std::span<const TensorRef> inputs, const Tensor& y) override;
  void upstream(const char* op, size_t node, const Tensor& dy, const std::vector<Tensor>& saved) override;
  void done() override;

  // For the wrappers of kernels.
  static const KernelTable& plain();
  static int64_t now();
  static void ran(const char* kernel, int64_t begin, const Work& work);

 private:
  struct Ran {
    const char* kernel;
    int64_t begin, end;
    Work work;
  };

  void add(const std::string& op, int64_t begin, int64_t end, const Work& work);
  void keep(Event::Kind kind, const std::string& name, int64_t begin, int64_t end, const Work& work);
  Work take_work();
  void close_part(int64_t end);

  const int64_t traced_steps_;
  KernelTable plain_;
  ScopedKernels kernels_;
  ScopedWatcher watch_;
  std::string part_;  // empty between two steps
  int64_t part_begin_ = 0, in_ops_ = 0;
  std::vector<Ran> ran_;  // kernels that no op has claimed yet
  const char* backward_of_ = nullptr;
  int64_t backward_begin_ = 0;
  std::map<std::pair<std::string, std::string>, Row> rows_;
  std::vector<Event> events_;
  int64_t steps_ = 0, ns_ = 0;
};

}  // namespace bonsai
