// Measures where a training step's time goes: wrappers in this thread's kernel table time every kernel, and
// each kernel is attributed to the op that called it.
//
//   Profile profile(DType::f32);   // from here on this thread is profiled
//   profile.part("batch");
//   trainer.step(0);               // marks its own parts
//   profile.end_step();
//   profile.rows();
//
// A forward op is timed from the start of its first kernel until it is recorded, a backward op from its call
// until it has returned its gradients. The row with an empty op is the remainder of a part: drawing the
// batch, or host work between two ops.
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
  // Floating-point operations of matrix products and attention, and bytes of the tensors passed to kernels,
  // as far as a kernel's arguments tell.
  struct Work {
    double flops = 0, bytes = 0;
  };
  struct Row {
    std::string part, op;  // op is empty for time outside of ops
    int64_t calls = 0, ns = 0;
    Work work = {};
  };
  struct Event {
    enum Kind { part, op, kernel } kind;
    std::string name, layer;
    int64_t begin, end;  // ns on the steady clock
    Work work = {};
  };

  // Keeps the events of the first `traced_steps` steps.
  explicit Profile(DType dtype, int64_t traced_steps = 0);
  ~Profile() override;

  void part(const char* name) override;
  void end_step();
  int64_t steps() const { return steps_; }
  int64_t ns() const { return ns_; }  // total of all steps
  std::vector<Row> rows() const;      // longest first; their times add up to ns()
  const std::vector<Event>& events() const { return events_; }

  void result(const char* op, std::span<const TensorRef> inputs, const Tensor& y) override;
  void upstream(const char* op, size_t node, const Tensor& dy, const std::vector<Tensor>& saved) override;
  void done() override;

  // For the kernel wrappers only.
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
  std::string part_;  // empty between steps
  int64_t part_begin_ = 0, in_ops_ = 0;
  std::vector<Ran> ran_;  // kernels not attributed to an op yet
  const char* backward_of_ = nullptr;
  int64_t backward_begin_ = 0;
  std::map<std::pair<std::string, std::string>, Row> rows_;
  std::vector<Event> events_;
  int64_t steps_ = 0, ns_ = 0;
};

}  // namespace bonsai
