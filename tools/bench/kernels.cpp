// How fast each CPU kernel is, as a share of what this machine can do: see README.md.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <set>

#include "bonsai/framework/autograd/dispatch.h"
#include "bonsai/framework/autograd/profile.h"
#include "bonsai/framework/core/parallel.h"

namespace bonsai {
namespace {

using Run = std::function<void()>;

struct Row {
  std::string kernel, sizes;
  Run run;
};

DType element = DType::f32;
bool counting = false;  // no kernel runs, no element is read

const KernelTable& table() { return kernels(Device{}, element); }

Tensor zero(const Shape& shape) { return zeros(shape, element); }

// Positive numbers without pattern; of i32, ids below `limit`.
Tensor numbers(const Shape& shape, DType dtype = element, int64_t limit = 2) {
  if (counting) return empty(shape, dtype);
  std::vector<double> values(static_cast<size_t>(shape.elements()));
  uint32_t state = 1;
  for (double& v : values) {
    state = state * 1664525 + 1013904223;
    v = dtype == DType::i32 ? static_cast<double>((state >> 8) % static_cast<uint32_t>(limit))
                            : 0.1 + static_cast<float>(state >> 8) * 0x1p-24;
  }
  return tensor(shape, values, dtype);
}

// What rows of one size share: activations (rows, width) and parameters (width).
struct Activations {
  int64_t rows, width;
  Tensor x = numbers({rows, width}), other = numbers({rows, width}), y = numbers({rows, width});
  Tensor weight = numbers({width}), bias = numbers({width}), row_gradient = zero({width}),
         row_gradient_2 = zero({width});
  Tensor stats = full({rows, 3}, 1, element), one_a_row = numbers({rows, 1});
  std::string sizes() const { return fmt::format("{}x{}", rows, width); }
};

void add_elementwise(std::vector<Row>& rows, Activations a) {
  const auto add = [&](const char* kernel, const Run& run) { rows.push_back({kernel, a.sizes(), run}); };
#define OP(name, functor, saves, domain)                            \
  add(#name, [a]() mutable { table().name(view(a.x), mut(a.y)); }); \
  add(#name "_backward", [a]() mutable { table().name##_backward(view(a.x), view(a.other), mut(a.y)); });
  BONSAI_ELEMENTWISE(OP)
#undef OP
  const Tensor flags = numbers({a.rows, a.width}, DType::i32);
  add("fill", [a]() mutable { table().fill(mut(a.y), 1); });
  add("accumulate", [a]() mutable { table().accumulate(view(a.x), mut(a.y)); });
  add("scale", [a]() mutable { table().scale(view(a.x), 0.5, mut(a.y)); });
  add("add", [a]() mutable { table().add(view(a.x), view(a.other), mut(a.y)); });
  add("sub", [a]() mutable { table().sub(view(a.x), view(a.other), mut(a.y)); });
  add("mul", [a]() mutable { table().mul(view(a.x), view(a.weight), mut(a.y)); });
  add("div", [a]() mutable { table().div(view(a.x), view(a.one_a_row), mut(a.y)); });
  add("where", [a, flags]() mutable { table().where(view(flags), view(a.x), view(a.other), mut(a.y)); });
  add("maximum", [a]() mutable { table().maximum(view(a.x), view(a.other), mut(a.y)); });
  add("minimum", [a]() mutable { table().minimum(view(a.x), view(a.other), mut(a.y)); });
  add("compare", [a, held = flags.copy()]() mutable {
    table().compare(view(a.x), view(a.other), kernel::Comparison::greater, mut(held));
  });
  add("expand", [a]() mutable { table().expand(view(a.weight), 0.5, mut(a.y)); });
  add("pow", [a]() mutable { table().pow(view(a.x), 1.5, mut(a.y)); });
  add("pow_backward", [a]() mutable { table().pow_backward(view(a.x), view(a.other), 1.5, mut(a.y)); });
  add("dropout", [a]() mutable { table().dropout(view(a.x), 0.1, {1, 2}, mut(a.y)); });
}

void add_rows(std::vector<Row>& rows, Activations a) {
  const auto add = [&](const char* kernel, const Run& run) { rows.push_back({kernel, a.sizes(), run}); };
  const auto gradient = [](Tensor& x) { return GradView{x.mutable_data(), true}; };
  add("softmax", [a]() mutable { table().softmax(view(a.x), mut(a.y)); });
  add("softmax_backward", [a]() mutable { table().softmax_backward(view(a.x), view(a.other), mut(a.y)); });
  add("log_softmax", [a]() mutable { table().log_softmax(view(a.x), mut(a.y)); });
  add("log_softmax_backward",
      [a]() mutable { table().log_softmax_backward(view(a.x), view(a.other), mut(a.y)); });
  add("layer_norm", [a]() mutable {
    table().layer_norm(view(a.x), view(a.weight), view(a.bias), 1e-5, mut(a.y), mut(a.stats));
  });
  add("layer_norm_backward", [a, gradient]() mutable {
    table().layer_norm_backward(view(a.x), view(a.weight), view(a.stats), view(a.other), mut(a.y),
                                gradient(a.row_gradient), gradient(a.row_gradient_2));
  });
  add("rms_norm",
      [a]() mutable { table().rms_norm(view(a.x), view(a.weight), 1e-5, mut(a.y), mut(a.stats)); });
  add("rms_norm_backward", [a, gradient]() mutable {
    table().rms_norm_backward(view(a.x), view(a.weight), view(a.stats), view(a.other), mut(a.y),
                              gradient(a.row_gradient));
  });
  add("column_sums", [a, gradient]() mutable { table().column_sums(view(a.x), gradient(a.row_gradient)); });
  const auto cube = [a](const Tensor& x) { return x.alias({1, a.rows, a.width}); };
  add("sum", [a, cube]() mutable { table().sum(view(cube(a.x)), 1, mut(a.row_gradient)); });
  add("max", [a, cube]() mutable { table().max(view(cube(a.x)), mut(a.row_gradient)); });
  add("max_backward",
      [a, cube]() mutable { table().max_backward(view(cube(a.x)), view(a.weight), view(a.bias), mut(a.y)); });
  const Tensor index = numbers({1, a.rows, a.width}, DType::i32, a.rows);
  add("argmax", [a, cube, largest = numbers({a.width}, DType::i32)]() mutable {
    table().argmax(view(cube(a.x)), mut(largest));
  });
  add("cumulative_sum", [a, cube]() mutable { table().cumulative_sum(view(cube(a.x)), false, mut(a.y)); });
  add("gather", [a, cube, index]() mutable {
    table().gather(view(cube(a.x)), view(index), mut(a.y), index_error(Device{}));
  });
  add("scatter_add", [a, cube, index]() mutable {
    Tensor y = cube(a.y);
    table().scatter_add(view(index), view(a.x), mut(y), index_error(Device{}));
  });
  add("permute", [a]() mutable { table().permute(view(a.x), {{1, 0}}, mut(a.y)); });
  add("copy_blocks", [a]() mutable {
    table().copy_blocks({a.x.data(), a.y.mutable_data(), a.rows, a.width / 2, a.width, a.width / 2, false});
  });
  const int64_t heads = a.width / 64, time = 64;
  const Tensor angles = numbers({time, 32, 2});
  add("rope", [a, angles, heads]() mutable {
    table().rope(view(a.x.alias({a.rows / 64, 64, heads, 64})), view(angles), false, false, mut(a.y));
  });
  const Tensor ids = numbers({a.rows}, DType::i32, 1000);
  Tensor vectors = numbers({1000, a.width});
  add("embedding", [a, ids, vectors]() mutable {
    table().embedding(view(vectors), view(ids), mut(a.y), index_error(Device{}));
  });
  add("embedding_backward", [a, ids, vectors, gradient]() mutable {
    table().embedding_backward(view(ids), view(a.x), 1000, gradient(vectors));
  });
}

void add_losses(std::vector<Row>& rows, int64_t tokens, int64_t vocabulary) {
  const std::string sizes = fmt::format("{}x{}", tokens, vocabulary);
  const Tensor logits = numbers({tokens, vocabulary}), target = numbers({tokens}, DType::i32, vocabulary);
  Tensor loss = zero({}), stats = numbers({tokens, 2}), dlogits = numbers({tokens, vocabulary});
  const kernel::CrossEntropy options{0, -100, false};
  rows.push_back({"cross_entropy", sizes, [=]() mutable {
                    table().cross_entropy(view(logits), view(target), options, mut(loss), mut(stats),
                                          index_error(Device{}));
                  }});
  rows.push_back({"cross_entropy_backward", sizes, [=]() mutable {
                    table().cross_entropy_backward(view(logits), view(target), view(stats), view(loss),
                                                   options, mut(dlogits));
                  }});
}

void add_product(std::vector<Row>& rows, int64_t m, int64_t n, int64_t k, bool ta, bool tb) {
  const Tensor a = numbers(ta ? Shape{k, m} : Shape{m, k}), b = numbers(tb ? Shape{n, k} : Shape{k, n});
  Tensor c = zero({m, n});
  kernel::Gemm g{};
  g.m = m, g.n = n, g.k = k;
  g.a = {a.data(), a.size(1), ta, {}}, g.b = {b.data(), b.size(1), tb, {}};
  g.c = c.mutable_data(), g.ldc = n;
  rows.push_back({"gemm", fmt::format("{}x{}x{}{}{}", m, n, k, ta ? "/ta" : "", tb ? "/tb" : ""),
                  [=]() { (void)a, (void)b, (void)c, table().gemm(g); }});
}

// The three products of a linear layer: forward, the gradient of x, that of the weight.
void add_linear(std::vector<Row>& rows, int64_t tokens, int64_t in, int64_t out) {
  add_product(rows, tokens, out, in, false, true);
  add_product(rows, tokens, in, out, false, false);
  add_product(rows, out, in, tokens, true, false);
}

void add_attention(std::vector<Row>& rows, int64_t batch, int64_t heads, int64_t time, int64_t width) {
  const Shape shape{batch, time, heads * width};
  const Tensor x[7] = {numbers(shape), numbers(shape), numbers(shape), numbers(shape),
                       numbers(shape), numbers(shape), numbers(shape)};
  const Tensor stats = numbers({batch * heads * time, 2});
  const auto at = [&](int i) {
    return kernel::Heads{const_cast<void*>(x[i].data()), time * heads * width, width, heads * width};
  };
  kernel::Attention a{};
  a.batch = batch, a.heads = a.kv_heads = heads, a.queries = a.keys = time, a.d_k = a.d_v = width;
  a.q = at(0), a.k = at(1), a.v = at(2), a.y = at(3);
  a.scale = 0.125, a.causal = true, a.stats = const_cast<void*>(stats.data());
  const kernel::AttentionGradients d{at(3), at(4), at(5), at(6), nullptr};
  const std::string sizes = fmt::format("{}x{}x{}x{}", batch, heads, time, width);
  const std::vector<Tensor> kept(x, x + 7);
  rows.push_back({"attention", sizes, [=] { (void)kept, (void)stats, table().attention(a); }});
  rows.push_back(
      {"attention_backward", sizes, [=] { (void)kept, (void)stats, table().attention_backward(a, d); }});
}

void add_optimizer(std::vector<Row>& rows, int64_t parameters) {
  const Tensor gradients = numbers({parameters});
  Tensor values = numbers({parameters}), m = zero({parameters}), v = zero({parameters});
  const auto state = std::make_shared<kernel::StepState>();
  const std::string sizes = std::to_string(parameters);
  rows.push_back({"gradient_norm", sizes, [=] { table().gradient_norm(view(gradients), 1, state.get()); }});
  const auto add = [&](const char* name, auto kernel, const auto& options, int n_slots) {
    rows.push_back({name, sizes, [=]() mutable {
                      const kernel::Slots slots{{mut(m), n_slots > 1 ? mut(v) : MutView{}}};
                      (table().*kernel)(view(gradients), options, 1, state.get(), mut(values), slots);
                    }});
  };
  add("adamw", &KernelTable::adamw, kernel::AdamW{0.9, 0.99, 1e-8, 0.1}, 2);
  add("adam", &KernelTable::adam, kernel::Adam{0.9, 0.99, 1e-8, 0.1}, 2);
  add("sgd", &KernelTable::sgd, kernel::Sgd{0.9, 0.1, false}, 1);
  add("lion", &KernelTable::lion, kernel::Lion{0.9, 0.99, 0.1}, 1);
}

void add_state(std::vector<Row>& rows) {
  const Tensor loss = numbers({});
  const auto state = std::make_shared<kernel::StepState>();
  rows.push_back({"add_loss", "1", [=] { table().add_loss(view(loss), true, state.get()); }});
  rows.push_back({"begin_update", "1", [=] { table().begin_update({1, 1e-3, {0.1, 0.01}}, state.get()); }});
}

std::vector<Row> all_rows() {
  std::vector<Row> rows;
  for (const auto& [tokens, width] : {std::pair{768, 128}, {4096, 1024}}) {
    const Activations a{.rows = tokens, .width = width};
    add_elementwise(rows, a);
    add_rows(rows, a);
  }
  for (const auto& [tokens, width] : {std::pair{768, 128}, {2048, 384}, {256, 768}}) {
    add_linear(rows, tokens, width, width);
    add_linear(rows, tokens, width, 4 * width);
  }
  add_product(rows, 1024, 1024, 1024, false, false);
  add_product(rows, 1, 512, 128, false, true);  // a token of text
  add_losses(rows, 768, 65), add_losses(rows, 256, 50257);
  add_attention(rows, 12, 4, 64, 32), add_attention(rows, 8, 6, 256, 64);
  add_state(rows);
  add_optimizer(rows, 800000), add_optimizer(rows, 16000000);
  return rows;
}

// A kernel of the list without a row is an error: nobody would see it become slow.
void check_coverage(const std::vector<Row>& rows) {
  std::set<std::string> benched;
  for (const Row& row : rows) benched.insert(row.kernel);
  KernelTable(table()).for_each([&](const char* name, auto&) {
    check(benched.contains(name), "bench", "the kernel {} has no row in tools/bench/kernels.cpp", name);
  });
}

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double best_seconds(int times, const Run& run) {
  double best = 1e30;
  for (int i = 0; i < times; ++i) {
    const auto start = Clock::now();
    run();
    best = std::min(best, seconds_since(start));
  }
  return best;
}

struct Peak {
  double flops, bytes;  // a second
};

// One large product on one thread, times the threads; and a = b + s c over arrays that no cache holds.
Peak measured_peak() {
  const int count = threads();
  std::vector<Row> product;
  add_product(product, 1536, 1536, 1536, false, false);
  set_threads(1);
  const double seconds = best_seconds(5, product[0].run);
  set_threads(count);
  constexpr int64_t kTriad = int64_t{1} << 25, kPart = kTriad / 64;
  Tensor a = zeros({kTriad});
  const Tensor b = full({kTriad}, 1), c = full({kTriad}, 2);
  float* out = a.mutable_span<float>().data();
  const float *in = b.span<float>().data(), *other = c.span<float>().data();
  const double triad = best_seconds(5, [&] {
    run_tiles(kTriad / kPart, [&](int64_t t) {
      for (int64_t i = t * kPart; i < (t + 1) * kPart; ++i) out[i] = in[i] + 3 * other[i];
    });
  });
  return {count * 2 * 1536.0 * 1536 * 1536 / seconds, 3.0 * kTriad * sizeof(float) / triad};
}

// Counted as the profile counts.
Profile::Work work_of(const Row& row) {
  Profile profile(element);
  profile.part("kernel");
  row.run();
  profile.end_step();
  Profile::Work work;
  for (const Profile::Row& r : profile.rows()) work.flops += r.work.flops, work.bytes += r.work.bytes;
  return work;
}

void register_row(const Row& row, const Peak& peak) {
  const auto time = [row, peak](benchmark::State& state) {
    const Profile::Work work = work_of(row);
    const auto start = Clock::now();
    for (auto _ : state) row.run();
    const double rate = static_cast<double>(state.iterations()) / seconds_since(start);
    const bool product = work.flops > 0;
    const double amount = product ? work.flops : work.bytes;
    state.counters[product ? "GFLOP/s" : "GB/s"] = amount * rate / 1e9;
    state.counters["%peak"] = 100 * amount * rate / (product ? peak.flops : peak.bytes);
  };
  benchmark::RegisterBenchmark((row.kernel + "/" + row.sizes).c_str(), time)
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
}

template <class... Args>
void do_nothing(Kernel<void(Args...)>& kernel) {
  kernel.run = [](Args...) {};
}

// A line a row, of f32 and f64: kernel, sizes, element type, bytes, operations.
void print_work() {
  counting = true;
  for (const DType type : {DType::f32, DType::f64}) {
    element = type;
    const ScopedKernels none(Device{}, type, [](KernelTable& t) {
      t.for_each([](const char*, auto& kernel) { do_nothing(kernel); });
    });
    const std::vector<Row> rows = all_rows();
    check_coverage(rows);
    for (const Row& row : rows) {
      const Profile::Work work = work_of(row);
      fmt::print("{} {} {} {:.0f} {:.0f}\n", row.kernel, row.sizes, name_of(type), work.bytes, work.flops);
    }
  }
}

}  // namespace
}  // namespace bonsai

int main(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "--work") {
    bonsai::print_work();
    return 0;
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  try {
    const std::vector<bonsai::Row> rows = bonsai::all_rows();
    bonsai::check_coverage(rows);
    const bonsai::Peak peak = bonsai::measured_peak();
    benchmark::AddCustomContext("peak", fmt::format("{:.1f} GFLOP/s, {:.1f} GB/s on {} threads",
                                                    peak.flops / 1e9, peak.bytes / 1e9, bonsai::threads()));
    benchmark::AddCustomContext("kernels", bonsai::cpu_info().level);
    benchmark::AddCustomContext("BLAS", bonsai::cpu_info().blas);
    for (const bonsai::Row& row : rows) bonsai::register_row(row, peak);
    benchmark::RunSpecifiedBenchmarks();
  } catch (const bonsai::Error& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
}
