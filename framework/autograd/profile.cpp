#include "bonsai/framework/autograd/profile.h"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace bonsai {
namespace {

thread_local Profile* current = nullptr;

using Work = Profile::Work;

// Derives a kernel's work from its arguments; called once per argument.
struct Counter {
  size_t element;  // bytes
  int writes;      // accesses per element of a result: 2 if the kernel also reads it
  Work work = {};

  void bytes(const void* data, const Shape& shape, DType dtype, int times) {
    if (data)
      work.bytes += static_cast<double>(times * shape.elements()) * static_cast<double>(size_of(dtype));
  }
  void operator()(const View& x) { bytes(x.data, x.shape, x.dtype, 1); }
  void operator()(const MutView& y) { bytes(y.data, y.shape, y.dtype, writes); }
  void operator()(const kernel::Blocks& b) {
    work.bytes += static_cast<double>((b.add ? 3 : 2) * b.outer * b.inner) * static_cast<double>(element);
  }
  void operator()(const kernel::Gemm& g) {
    double products = 1;
    for (const int64_t n : g.batch) products *= static_cast<double>(n);
    const double m = static_cast<double>(g.m), n = static_cast<double>(g.n), k = static_cast<double>(g.k);
    work.flops += 2 * products * m * n * k;
    work.bytes += products * (m * k + k * n + (g.add ? 2 : 1) * m * n) * static_cast<double>(element);
  }
  void operator()(const kernel::Slots& s) {
    for (const MutView& slot : s.slot) (*this)(slot);
  }
  template <class T>
  void operator()(const T&) {}
};

// Number of query-key pairs that the causal mask and the window allow.
double pairs(const kernel::Attention& a) {
  int64_t count = 0;
  for (int64_t i = 0; i < a.queries; ++i) {
    const int64_t at = i + a.keys - a.queries;
    const int64_t first = a.window > 0 ? std::max<int64_t>(0, at - a.window + 1) : 0;
    const int64_t after = a.causal ? at + 1 : a.window > 0 ? at + a.window : a.keys;
    count += std::max<int64_t>(0, std::min(a.keys, after) - first);
  }
  return static_cast<double>(a.batch * a.heads * count);
}

// Whether a kernel also reads what it writes.
bool updates(const char* kernel) {
#define UPDATE(name, Options) || !std::strcmp(kernel, #name)
  return !std::strcmp(kernel, "accumulate") BONSAI_UPDATES(UPDATE);
#undef UPDATE
}

template <class... Args>
Work work_of(const char* kernel, DType dtype, const Args&... args) {
  Counter counter{size_of(dtype), updates(kernel) ? 2 : 1};
  (counter(args), ...);
  return counter.work;
}
// An embedding reads only the table rows that the ids name, as many bytes as it writes.
Work work_of(const char*, DType, const View&, const View& ids, const MutView& y, IndexError*) {
  Counter counter{0, 2};
  counter(ids), counter(y);
  return counter.work;
}
// Queries, keys, values, results and two statistics per row.
double bytes_of(const kernel::Attention& a, DType dtype) {
  const int64_t rows = a.heads * a.queries, pairs = a.kv_heads * a.keys;
  return static_cast<double>(a.batch * (rows * (a.d_k + a.d_v + 2) + pairs * (a.d_k + a.d_v))) *
         static_cast<double>(size_of(dtype));
}
// Forward computes scores and results. Backward recomputes the scores and computes the gradients of weights,
// queries, keys and values.
Work work_of(const char*, DType dtype, const kernel::Attention& a) {
  return {.flops = pairs(a) * static_cast<double>(2 * a.d_k + 2 * a.d_v), .bytes = bytes_of(a, dtype)};
}
Work work_of(const char*, DType dtype, const kernel::Attention& a, const kernel::AttentionGradients&) {
  return {.flops = pairs(a) * static_cast<double>(6 * a.d_k + 4 * a.d_v), .bytes = 2 * bytes_of(a, dtype)};
}

template <auto kEntry>
struct Timed;
template <class... Args, Kernel<void(Args...)> KernelTable::*kEntry>
struct Timed<kEntry> {
  static void run(Args... args) {
    const Kernel<void(Args...)>& kernel = Profile::plain().*kEntry;
    const int64_t begin = Profile::now();
    kernel.run(args...);
    Profile::ran(kernel.name, begin, work_of(kernel.name, kernel.dtype, args...));
  }
};

void wrap(KernelTable& table) {
#define KERNEL(name, arguments) \
  if (table.name.run) table.name.run = Timed<&KernelTable::name>::run;
#define OP(name, functor, saves, domain) KERNEL(name, ) KERNEL(name##_backward, )
#include "bonsai/framework/backend/kernels.def"
  BONSAI_ELEMENTWISE(OP)
#undef OP
#undef KERNEL
}

void add_to(Work& sum, const Work& w) { sum.flops += w.flops, sum.bytes += w.bytes; }

}  // namespace

const KernelTable& Profile::plain() { return current->plain_; }

int64_t Profile::now() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void Profile::ran(const char* kernel, int64_t begin, const Work& work) {
  current->ran_.push_back({kernel, begin, now(), work});
}

Profile::Profile(DType dtype, int64_t traced_steps)
    : traced_steps_(traced_steps),
      plain_(kernels(Device{}, dtype)),
      kernels_(Device{}, dtype, wrap),
      watch_(*this) {
  check(!current, "profile", "this thread is being profiled already");
  current = this;
}

Profile::~Profile() { current = nullptr; }

void Profile::keep(Event::Kind kind, const std::string& name, int64_t begin, int64_t end, const Work& work) {
  if (steps_ >= traced_steps_) return;
  const std::string* layer = PathScope::current();
  events_.push_back({kind, name, layer && kind != Event::part ? *layer : "", begin, end, work});
}

void Profile::add(const std::string& op, int64_t begin, int64_t end, const Work& work) {
  Row& row = rows_[{part_, op}];
  ++row.calls;
  row.ns += end - begin;
  add_to(row.work, work);
  in_ops_ += end - begin;
}

// Returns the work of the kernels that ran since the last call.
Work Profile::take_work() {
  Work sum;
  for (const Ran& r : ran_) {
    add_to(sum, r.work);
    keep(Event::kernel, r.kernel, r.begin, r.end, r.work);
  }
  ran_.clear();
  return sum;
}

void Profile::close_part(int64_t end) {
  // Kernels that were not called by an op get rows of their own.
  for (const Ran& r : ran_) add(r.kernel, r.begin, r.end, r.work);
  take_work();
  if (part_.empty()) return;
  Row& row = rows_[{part_, ""}];
  ++row.calls;
  row.ns += end - part_begin_ - in_ops_;
  ns_ += end - part_begin_;
  keep(Event::part, part_, part_begin_, end, {});
  in_ops_ = 0;
}

void Profile::part(const char* name) {
  if (part_ == name) return;
  const int64_t time = now();
  close_part(time);
  part_ = name;
  part_begin_ = time;
}

void Profile::end_step() {
  close_part(now());
  part_.clear();
  ++steps_;
}

std::vector<Profile::Row> Profile::rows() const {
  std::vector<Row> all;
  for (const auto& [key, row] : rows_) all.push_back({key.first, key.second, row.calls, row.ns, row.work});
  std::stable_sort(all.begin(), all.end(), [](const Row& a, const Row& b) { return a.ns > b.ns; });
  return all;
}

void Profile::result(const char* op, std::span<const TensorRef>, const Tensor&) {
  if (backward_of_ || ran_.empty()) return;  // within a backward function, or an op that ran no kernel
  const int64_t begin = ran_.front().begin, end = now();
  const Work work = take_work();
  add(op, begin, end, work);
  keep(Event::op, op, begin, end, work);
}

void Profile::upstream(const char* op, size_t, const Tensor&, const std::vector<Tensor>&) {
  for (const Ran& r : ran_) add(r.kernel, r.begin, r.end, r.work);
  take_work();
  backward_of_ = op;
  backward_begin_ = now();
}

void Profile::done() {
  const int64_t end = now();
  const bool worked = !ran_.empty();
  const Work work = take_work();
  if (worked) {
    add(backward_of_, backward_begin_, end, work);
    keep(Event::op, backward_of_, backward_begin_, end, work);
  }
  backward_of_ = nullptr;
}

}  // namespace bonsai
