// The kernels of backward with a part of their formula changed, in plain loops over float64. The formula stands
// beside each group; what is changed is named as text.
#include <algorithm>
#include <cmath>

#include "framework/autograd/dispatch.h"
#include "framework/checks/mutate.h"

namespace bonsai {
namespace {

thread_local int64_t calls = 0;

// The real kernels, whatever is planted.
const KernelTable& real() {
  static const KernelTable table = kernels(Device{}, DType::f64);
  return table;
}

using Mutants = std::vector<KernelMutant>;

// A mutant of one entry of the table. F has the entry's arguments and captures nothing.
template <class... Args, class F>
void add(Mutants& all, const char* name, Kernel<void(Args...)> KernelTable::*entry, const char* change, F, const char* otherwise = "") {
  static_assert(std::is_empty_v<F>);
  all.push_back({name, change, otherwise, [entry](KernelTable& table) {
                   (table.*entry).run = [](Args... args) {
                     ++calls;
                     F{}(args...);
                   };
                 }});
}

// dx[i] = F(saved[i], dy[i])
template <class F>
void add_elementwise(Mutants& all, const char* name, Kernel<void(View, View, MutView)> KernelTable::*entry, const char* change, F) {
  add(all, name, entry, change, [](View saved, View dy, MutView dx) {
    for (int64_t i = 0; i < dy.shape.elements(); ++i) dx.as<double>()[i] = F{}(saved.as<double>()[i], dy.as<double>()[i]);
  });
}

void copy(View x, MutView y) { std::copy_n(x.as<double>(), x.shape.elements(), y.as<double>()); }

void elementwise(Mutants& all) {
  static constexpr auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  // dx = -dy
  add_elementwise(all, "neg_backward", &KernelTable::neg_backward, "minus left out", [](double, double dy) { return dy; });
  // dx = dy y
  add_elementwise(all, "exp_backward", &KernelTable::exp_backward, "y left out", [](double, double dy) { return dy; });
  // dx = dy / x
  add_elementwise(all, "log_backward", &KernelTable::log_backward, "x left out", [](double, double dy) { return dy; });
  // dx = dy / (2 y)
  add_elementwise(all, "sqrt_backward", &KernelTable::sqrt_backward, "2 left out", [](double y, double dy) { return dy / y; });
  add_elementwise(all, "sqrt_backward", &KernelTable::sqrt_backward, "y left out", [](double, double dy) { return dy / 2; });
  // dx = dy (1 - y^2)
  add_elementwise(all, "tanh_backward", &KernelTable::tanh_backward, "1 left out", [](double y, double dy) { return -dy * y * y; });
  add_elementwise(all, "tanh_backward", &KernelTable::tanh_backward, "y^2 left out", [](double, double dy) { return dy; });
  // dx = dy y (1 - y)
  add_elementwise(all, "sigmoid_backward", &KernelTable::sigmoid_backward, "1 left out", [](double y, double dy) { return -dy * y * y; });
  add_elementwise(all, "sigmoid_backward", &KernelTable::sigmoid_backward, "- y left out", [](double y, double dy) { return dy * y; });
  // dx = dy where y > 0
  add_elementwise(all, "relu_backward", &KernelTable::relu_backward, "y > 0 left out", [](double, double dy) { return dy; });
  add_elementwise(all, "relu_backward", &KernelTable::relu_backward, "y > 0 turned round", [](double y, double dy) { return y > 0 ? 0 : dy; });
  // dx = dy s (1 + x (1 - s)), s = sigmoid(x)
  add_elementwise(all, "silu_backward", &KernelTable::silu_backward, "1 left out", [](double x, double dy) {
    return dy * sigmoid(x) * x * (1 - sigmoid(x));
  });
  add_elementwise(all, "silu_backward", &KernelTable::silu_backward, "x (1 - s) left out", [](double x, double dy) { return dy * sigmoid(x); });
  add_elementwise(all, "silu_backward", &KernelTable::silu_backward, "- s left out", [](double x, double dy) { return dy * sigmoid(x) * (1 + x); });
  // dx = dy (below + x density)
  static constexpr auto below = [](double x) { return 0.5 * (1 + std::erf(x / std::sqrt(2.0))); };
  static constexpr auto density = [](double x) { return 0.39894228040143267794 * std::exp(-0.5 * x * x); };
  add_elementwise(all, "gelu_backward", &KernelTable::gelu_backward, "below left out", [](double x, double dy) { return dy * x * density(x); });
  add_elementwise(all, "gelu_backward", &KernelTable::gelu_backward, "x density left out", [](double x, double dy) { return dy * below(x); });
  // dx = dy / 2 (1 + t + x (1 - t^2) k (1 + 3 c x^2)), t = tanh(k (x + c x^3))
  static constexpr auto t = [](double x) { return std::tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)); };
  static constexpr auto slope = [](double x, double cubic) {
    const double y = std::tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x));
    return x * (1 - y * y) * 0.79788456080286535588 * (1 + cubic * 3 * 0.044715 * x * x);
  };
  add_elementwise(all, "gelu_tanh_backward", &KernelTable::gelu_tanh_backward, "1 left out", [](double x, double dy) { return dy / 2 * (t(x) + slope(x, 1)); });
  add_elementwise(all, "gelu_tanh_backward", &KernelTable::gelu_tanh_backward, "t left out", [](double x, double dy) { return dy / 2 * (1 + slope(x, 1)); });
  add_elementwise(all, "gelu_tanh_backward", &KernelTable::gelu_tanh_backward, "x (1 - t^2) ... left out", [](double x, double dy) { return dy / 2 * (1 + t(x)); });
  add_elementwise(all, "gelu_tanh_backward", &KernelTable::gelu_tanh_backward, "3 c x^2 left out", [](double x, double dy) { return dy / 2 * (1 + t(x) + slope(x, 0)); });
  // dx = p x^(p - 1) dy
  add(all, "pow_backward", &KernelTable::pow_backward, "p left out", [](View x, View dy, double p, MutView dx) {
    for (int64_t i = 0; i < dy.shape.elements(); ++i) dx.as<double>()[i] = std::pow(x.as<double>()[i], p - 1) * dy.as<double>()[i];
  });
  add(all, "pow_backward", &KernelTable::pow_backward, "- 1 left out of the exponent", [](View x, View dy, double p, MutView dx) {
    for (int64_t i = 0; i < dy.shape.elements(); ++i) dx.as<double>()[i] = p * std::pow(x.as<double>()[i], p) * dy.as<double>()[i];
  });
  // dx = dy mask / (1 - p)
  add(all, "dropout", &KernelTable::dropout, "1 / (1 - p) left out", [](View x, double p, RandomKey key, MutView y) {
    real().dropout(x, p, key, y);
    for (int64_t i = 0; i < x.shape.elements(); ++i) y.as<double>()[i] *= 1 - p;
  });
  add(all, "dropout", &KernelTable::dropout, "mask left out", [](View x, double p, RandomKey, MutView y) {
    for (int64_t i = 0; i < x.shape.elements(); ++i) y.as<double>()[i] = x.as<double>()[i] / (1 - p);
  });
  add(all, "dropout", &KernelTable::dropout, "another key", [](View x, double p, RandomKey key, MutView y) { real().dropout(x, p, {key.key + 1, key.counter}, y); });
}

void arithmetic(Mutants& all) {
  // y = factor x
  add(all, "scale", &KernelTable::scale, "factor left out", [](View x, double, MutView y) { copy(x, y); });
  // y += x
  add(all, "accumulate", &KernelTable::accumulate, "y left out: overwritten", [](View x, MutView y) { copy(x, y); });
  add(all, "accumulate", &KernelTable::accumulate, "x left out: never added", [](View, MutView) {});
  // y = a b, y = a / b; in backward a is dy
  add(all, "mul", &KernelTable::mul, "b left out", [](View a, View, MutView y) { copy(a, y); });
  add(all, "div", &KernelTable::div, "b left out", [](View a, View, MutView y) { copy(a, y); });
  // y = condition ? a : b
  add(all, "where", &KernelTable::where, "condition turned round", [](View c, View a, View b, MutView y) { real().where(c, b, a, y); });
  // y = factor x, stretched
  add(all, "expand", &KernelTable::expand, "factor left out", [](View x, double, MutView y) { real().expand(x, 1, y); }, "the factor is 1");
  // y = x where j <= i + Tk - Tq, else value
  static constexpr auto diagonal = [](View x, double value, MutView y, int64_t shift) {
    const int64_t queries = x.shape[-2], keys = x.shape[-1];
    for (int64_t e = 0; e < x.shape.elements(); ++e) {
      const int64_t i = e / keys % queries, j = e % keys;
      y.as<double>()[e] = j > i + keys - queries + shift ? value : x.as<double>()[e];
    }
  };
  add(all, "causal_mask", &KernelTable::causal_mask, "the diagonal one lower", [](View x, double v, MutView y) { diagonal(x, v, y, -1); });
  add(all, "causal_mask", &KernelTable::causal_mask, "the diagonal one higher", [](View x, double v, MutView y) { diagonal(x, v, y, 1); },
      "what comes down to a masked score is zero already");
  // y = sum of the middle axis of (outer, n, inner)
  static constexpr auto sum = [](View x, double factor, MutView y, int64_t begin, int64_t left_out) {
    const int64_t outer = x.shape.dim[0], n = x.shape.dim[1], inner = x.shape.dim[2];
    for (int64_t o = 0; o < outer; ++o)
      for (int64_t i = 0; i < inner; ++i) {
        double total = 0;
        for (int64_t k = begin; k < n - left_out; ++k) total += x.as<double>()[(o * n + k) * inner + i];
        y.as<double>()[o * inner + i] = factor * total;
      }
  };
  add(all, "sum", &KernelTable::sum, "first term left out", [](View x, double f, MutView y) { sum(x, f, y, 1, 0); });
  add(all, "sum", &KernelTable::sum, "last term left out", [](View x, double f, MutView y) { sum(x, f, y, 0, 1); });
  // dx = dy where x = y, shared among ties
  add(all, "max_backward", &KernelTable::max_backward, "x = y left out", [](View x, View, View dy, MutView dx) {
    const int64_t n = x.shape.dim[1], inner = x.shape.dim[2];
    for (int64_t e = 0; e < x.shape.elements(); ++e) dx.as<double>()[e] = dy.as<double>()[e / (n * inner) * inner + e % inner];
  });
  add(all, "max_backward", &KernelTable::max_backward, "given to the next element", [](View x, View y, View dy, MutView dx) {
    const int64_t n = x.shape.dim[1], inner = x.shape.dim[2];
    for (int64_t e = 0; e < x.shape.elements(); ++e) {
      const int64_t outer = e / (n * inner), k = e / inner % n, i = e % inner, next = (outer * n + (k + 1) % n) * inner + i;
      const bool largest = x.as<double>()[e] == y.as<double>()[outer * inner + i];
      dx.as<double>()[next] = largest ? dy.as<double>()[outer * inner + i] : 0;
    }
  });
}

void moving(Mutants& all) {
  add(all, "fill", &KernelTable::fill, "1 for 0", [](MutView y, double) { real().fill(y, 1); }, "all of it is written again");
  add(all, "permute", &KernelTable::permute, "index off by one", [](View x, Axes axes, MutView y) {
    real().permute(x, axes, y);
    std::rotate(y.as<double>(), y.as<double>() + 1, y.as<double>() + x.shape.elements());
  });
  // dst (+)= src, block by block
  add(all, "copy_blocks", &KernelTable::copy_blocks, "y left out: overwritten", [](const Blocks& b) {
    Blocks changed = b;
    changed.add = false;
    real().copy_blocks(changed);
  }, "nothing is there to add to");
  add(all, "copy_blocks", &KernelTable::copy_blocks, "last block left out", [](const Blocks& b) {
    Blocks changed = b;
    --changed.outer;
    real().copy_blocks(changed);
  });
  add(all, "copy_blocks", &KernelTable::copy_blocks, "index off by one", [](const Blocks& b) {
    for (int64_t o = 0; o < b.outer; ++o)
      for (int64_t i = 0; i < b.inner; ++i) {
        double& to = static_cast<double*>(b.dst)[o * b.dst_stride + i];
        to = static_cast<const double*>(b.src)[o * b.src_stride + (i + 1) % b.inner] + (b.add ? to : 0);
      }
  });
}

void products(Mutants& all) {
  // C (+)= sum over k of A(i,k) B(k,j)
  add(all, "gemm", &KernelTable::gemm, "last term of the inner sum left out", [](const Gemm& g) {
    Gemm changed = g;
    --changed.k;
    real().gemm(changed);
  });
  add(all, "gemm", &KernelTable::gemm, "first term of the inner sum left out", [](const Gemm& g) {
    Gemm changed = g;
    --changed.k;
    changed.a.data = static_cast<const double*>(g.a.data) + (g.a.transposed ? g.a.ld : 1);
    changed.b.data = static_cast<const double*>(g.b.data) + (g.b.transposed ? 1 : g.b.ld);
    real().gemm(changed);
  });
  add(all, "gemm", &KernelTable::gemm, "last entry of a summed batch axis left out", [](const Gemm& g) {
    Gemm changed = g;
    for (int axis = 0; axis < Gemm::kBatchAxes; ++axis)
      if (g.c_step[axis] == 0 && g.batch[axis] > 1) --changed.batch[axis];
    real().gemm(changed);
  }, "no batch axis is summed");
  add(all, "gemm", &KernelTable::gemm, "C left out: overwritten", [](const Gemm& g) {
    Gemm changed = g;
    changed.add = false;
    real().gemm(changed);
  }, "nothing is there to add to");
  // y (+)= sum over rows
  add(all, "column_sums", &KernelTable::column_sums, "last row left out", [](View x, GradView y) {
    View fewer = x;
    fewer.shape = {x.shape.rows() - 1, x.shape[-1]};
    real().column_sums(fewer, y);
  });
  add(all, "column_sums", &KernelTable::column_sums, "y left out: overwritten", [](View x, GradView y) {
    real().column_sums(x, {y.data, false});
  }, "nothing is there to add to");
}

// f(row's first element, n) for every row of the last axis.
template <class F>
void rows(View x, F f) {
  const int64_t n = x.shape[-1];
  for (int64_t row = 0; row < x.shape.rows(); ++row) f(row * n, n);
}

void norms(Mutants& all) {
  // dx = y (dy - sum(y dy))
  static constexpr auto softmax = [](View y, View dy, MutView dx, double own, double others, int64_t left_out) {
    rows(y, [&](int64_t at, int64_t n) {
      const double *p = y.as<double>() + at, *d = dy.as<double>() + at;
      double sum = 0;
      for (int64_t i = 0; i < n - left_out; ++i) sum += p[i] * d[i];
      for (int64_t i = 0; i < n; ++i) dx.as<double>()[at + i] = p[i] * (own * d[i] - others * sum);
    });
  };
  add(all, "softmax_backward", &KernelTable::softmax_backward, "dy left out", [](View y, View dy, MutView dx) { softmax(y, dy, dx, 0, 1, 0); });
  add(all, "softmax_backward", &KernelTable::softmax_backward, "sum left out", [](View y, View dy, MutView dx) { softmax(y, dy, dx, 1, 0, 0); });
  add(all, "softmax_backward", &KernelTable::softmax_backward, "last term of the sum left out",
      [](View y, View dy, MutView dx) { softmax(y, dy, dx, 1, 1, 1); });
  // dx = dy - exp(y) sum(dy)
  static constexpr auto log_softmax = [](View y, View dy, MutView dx, double own, double others) {
    rows(y, [&](int64_t at, int64_t n) {
      double sum = 0;
      for (int64_t i = 0; i < n; ++i) sum += dy.as<double>()[at + i];
      for (int64_t i = 0; i < n; ++i) dx.as<double>()[at + i] = own * dy.as<double>()[at + i] - others * std::exp(y.as<double>()[at + i]) * sum;
    });
  };
  add(all, "log_softmax_backward", &KernelTable::log_softmax_backward, "dy left out", [](View y, View dy, MutView dx) { log_softmax(y, dy, dx, 0, 1); });
  add(all, "log_softmax_backward", &KernelTable::log_softmax_backward, "exp(y) sum left out", [](View y, View dy, MutView dx) { log_softmax(y, dy, dx, 1, 0); });
  // dx = rstd (w dy - mean(w dy) - x_hat mean(w dy x_hat)), dw = sum of dy x_hat, db = sum of dy
  static constexpr auto layer_norm = [](View x, View w, View stats, View dy, MutView dx, double own, double mean, double hat) {
    if (!dx.data) return;
    rows(x, [&](int64_t at, int64_t n) {
      const double *in = x.as<double>() + at, *d = dy.as<double>() + at, *s = stats.as<double>() + 2 * (at / n);
      const auto x_hat = [&](int64_t i) { return (in[i] - in[0] - s[0]) * s[1]; };
      double sum = 0, sum_hat = 0;
      for (int64_t i = 0; i < n; ++i) sum += w.as<double>()[i] * d[i], sum_hat += w.as<double>()[i] * d[i] * x_hat(i);
      for (int64_t i = 0; i < n; ++i)
        dx.as<double>()[at + i] = s[1] * (own * w.as<double>()[i] * d[i] - mean * sum / static_cast<double>(n) -
                                          hat * x_hat(i) * sum_hat / static_cast<double>(n));
    });
  };
  add(all, "layer_norm_backward", &KernelTable::layer_norm_backward, "w dy left out", [](View x, View w, View s, View dy, MutView dx, GradView dw, GradView db) {
    real().layer_norm_backward(x, w, s, dy, {}, dw, db);
    layer_norm(x, w, s, dy, dx, 0, 1, 1);
  });
  add(all, "layer_norm_backward", &KernelTable::layer_norm_backward, "mean(w dy) left out", [](View x, View w, View s, View dy, MutView dx, GradView dw, GradView db) {
    real().layer_norm_backward(x, w, s, dy, {}, dw, db);
    layer_norm(x, w, s, dy, dx, 1, 0, 1);
  });
  add(all, "layer_norm_backward", &KernelTable::layer_norm_backward, "x_hat mean(w dy x_hat) left out", [](View x, View w, View s, View dy, MutView dx, GradView dw, GradView db) {
    real().layer_norm_backward(x, w, s, dy, {}, dw, db);
    layer_norm(x, w, s, dy, dx, 1, 1, 0);
  });
  add(all, "layer_norm_backward", &KernelTable::layer_norm_backward, "last row of dw left out", [](View x, View w, View s, View dy, MutView dx, GradView dw, GradView db) {
    View fewer = x, d = dy;
    fewer.shape = d.shape = {x.shape.rows() - 1, x.shape[-1]};
    real().layer_norm_backward(x, w, s, dy, dx, {}, db);
    real().layer_norm_backward(fewer, w, s, d, {}, dw, {});
  });
  add(all, "layer_norm_backward", &KernelTable::layer_norm_backward, "last row of db left out", [](View x, View w, View s, View dy, MutView dx, GradView dw, GradView db) {
    View fewer = x, d = dy;
    fewer.shape = d.shape = {x.shape.rows() - 1, x.shape[-1]};
    real().layer_norm_backward(x, w, s, dy, dx, dw, {});
    real().layer_norm_backward(fewer, w, s, d, {}, {}, db);
  }, "the row has no bias");
  // dx = r (w dy - x r^2 mean(w dy x)), dw = sum of dy x r
  static constexpr auto rms_norm = [](View x, View w, View stats, View dy, MutView dx, double own, double pull) {
    if (!dx.data) return;
    rows(x, [&](int64_t at, int64_t n) {
      const double *in = x.as<double>() + at, *d = dy.as<double>() + at, r = stats.as<double>()[at / n];
      double sum = 0;
      for (int64_t i = 0; i < n; ++i) sum += w.as<double>()[i] * d[i] * in[i];
      for (int64_t i = 0; i < n; ++i)
        dx.as<double>()[at + i] = r * (own * w.as<double>()[i] * d[i] - pull * in[i] * r * r * sum / static_cast<double>(n));
    });
  };
  add(all, "rms_norm_backward", &KernelTable::rms_norm_backward, "w dy left out", [](View x, View w, View s, View dy, MutView dx, GradView dw) {
    real().rms_norm_backward(x, w, s, dy, {}, dw);
    rms_norm(x, w, s, dy, dx, 0, 1);
  });
  add(all, "rms_norm_backward", &KernelTable::rms_norm_backward, "x r^2 mean(w dy x) left out", [](View x, View w, View s, View dy, MutView dx, GradView dw) {
    real().rms_norm_backward(x, w, s, dy, {}, dw);
    rms_norm(x, w, s, dy, dx, 1, 0);
  });
  add(all, "rms_norm_backward", &KernelTable::rms_norm_backward, "last row of dw left out", [](View x, View w, View s, View dy, MutView dx, GradView dw) {
    View fewer = x, d = dy;
    fewer.shape = d.shape = {x.shape.rows() - 1, x.shape[-1]};
    real().rms_norm_backward(x, w, s, dy, dx, {});
    real().rms_norm_backward(fewer, w, s, d, {}, dw);
  });
}

void tables(Mutants& all) {
  // dtable[id] += dy
  static constexpr auto scatter = [](View ids, View dy, int64_t count, GradView table, int64_t shift, bool sums) {
    const int64_t n = dy.shape[-1];
    std::fill_n(table.as<double>(), count * n, 0.0);
    for (int64_t i = 0; i < ids.shape.elements(); ++i)
      for (int64_t j = 0; j < n; ++j) {
        double& to = table.as<double>()[(ids.as<int32_t>()[i] + shift) % count * n + j];
        to = dy.as<double>()[i * n + j] + (sums ? to : 0);
      }
  };
  add(all, "embedding_backward", &KernelTable::embedding_backward, "overwritten where an id comes again",
      [](View ids, View dy, int64_t count, GradView table) { scatter(ids, dy, count, table, 0, false); });
  add(all, "embedding_backward", &KernelTable::embedding_backward, "ids off by one",
      [](View ids, View dy, int64_t count, GradView table) { scatter(ids, dy, count, table, 1, true); });
  add(all, "embedding_backward", &KernelTable::embedding_backward, "last id left out", [](View ids, View dy, int64_t count, GradView table) {
    View fewer = ids;
    fewer.shape = {ids.shape.elements() - 1};
    scatter(fewer, dy, count, table, 0, true);
  });
  // dlogits = dloss (softmax - target) / count, target = (1 - s) one_hot + s / V
  static constexpr auto cross_entropy = [](View logits, View target, View stats, View dloss, const CrossEntropy& o, MutView d, double soft, double hard, int64_t shift) {
    const int64_t count = o.mean ? target.shape.elements() - std::count(target.as<int32_t>(), target.as<int32_t>() + target.shape.elements(), static_cast<int32_t>(o.ignore_index)) : 1;
    rows(logits, [&](int64_t at, int64_t n) {
      const int64_t row = at / n, id = target.as<int32_t>()[row];
      const double *s = stats.as<double>() + 2 * row, factor = id == o.ignore_index ? 0 : dloss.as<double>()[0] / static_cast<double>(std::max<int64_t>(1, count));
      for (int64_t j = 0; j < n; ++j) {
        const double p = std::exp(logits.as<double>()[at + j] - s[0]) / s[1];
        const double wanted = (1 - o.label_smoothing) * static_cast<double>(j == (id + shift) % n) + o.label_smoothing / static_cast<double>(n);
        d.as<double>()[at + j] = factor * (soft * p - hard * wanted);
      }
    });
  };
  using CE = const CrossEntropy&;
  add(all, "cross_entropy_backward", &KernelTable::cross_entropy_backward, "softmax left out",
      [](View x, View t, View s, View dl, CE o, MutView d) { cross_entropy(x, t, s, dl, o, d, 0, 1, 0); });
  add(all, "cross_entropy_backward", &KernelTable::cross_entropy_backward, "target left out",
      [](View x, View t, View s, View dl, CE o, MutView d) { cross_entropy(x, t, s, dl, o, d, 1, 0, 0); });
  add(all, "cross_entropy_backward", &KernelTable::cross_entropy_backward, "target off by one",
      [](View x, View t, View s, View dl, CE o, MutView d) { cross_entropy(x, t, s, dl, o, d, 1, 1, 1); });
  add(all, "cross_entropy_backward", &KernelTable::cross_entropy_backward, "smoothing left out", [](View x, View t, View s, View dl, CE o, MutView d) {
    real().cross_entropy_backward(x, t, s, dl, {0, o.ignore_index, o.mean}, d);
  }, "nothing is smoothed");
  add(all, "cross_entropy_backward", &KernelTable::cross_entropy_backward, "ignored targets counted", [](View x, View t, View s, View dl, CE o, MutView d) {
    real().cross_entropy_backward(x, t, s, dl, {o.label_smoothing, -1000, o.mean}, d);
  }, "nothing is ignored");
  add(all, "cross_entropy_backward", &KernelTable::cross_entropy_backward, "1 / count left out", [](View x, View t, View s, View dl, CE o, MutView d) {
    real().cross_entropy_backward(x, t, s, dl, {o.label_smoothing, o.ignore_index, false}, d);
  }, "the sum is not divided");
}

// With w = softmax(scale q k^T + mask) and m the dropout mask: dv = (m w)^T dy, dw = m (dy v^T),
// ds = w (dw - sum(w dw)), dq = scale ds k, dk = scale ds^T q.
struct AttentionPlant {
  double sum = 1, own = 1;              // the two terms of ds
  bool drop_v = true, drop_w = true;    // m in dv and in dw
  bool mask = true, causal = true, scale_q = true, scale_k = true;
  int64_t diagonal = 0;                 // the causal limit, so many keys higher
  int64_t skipped_query = -1, skipped_key = -1;
  int64_t head_shift = 0;               // keys and values of another head
};

void attention_backward(const Attention& a, const AttentionGradients& d, const AttentionPlant& plant) {
  std::vector<double> drop(static_cast<size_t>(a.batch * a.heads * a.queries * a.keys), 1);
  const Shape all{static_cast<int64_t>(drop.size())};
  if (a.dropout > 0) real().dropout({drop.data(), all, DType::f64}, a.dropout, a.key, {drop.data(), all, DType::f64});
  const auto row = [](const Heads& h, int64_t b, int64_t head, int64_t t) { return static_cast<double*>(h.data) + b * h.batch + head * h.head + t * h.row; };
  const auto dot = [](const double* x, const double* y, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += x[i] * y[i];
    return sum;
  };
  const auto add_to = [](double* y, double f, const double* x, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i] += f * x[i];
  };
  for (int64_t b = 0; b < a.batch; ++b)
    for (int64_t h = 0; h < a.heads; ++h) {
      const int64_t kv = (h + plant.head_shift) % a.heads;
      for (int64_t j = 0; j < a.keys; ++j)
        std::fill_n(row(d.dk, b, h, j), a.d_k, 0.0), std::fill_n(row(d.dv, b, h, j), a.d_v, 0.0);
      for (int64_t i = 0; i < a.queries; ++i) {
        std::fill_n(row(d.dq, b, h, i), a.d_k, 0.0);
        if (i == plant.skipped_query) continue;
        std::vector<double> w(static_cast<size_t>(a.keys)), dw = w;
        double top = -INFINITY, total = 0, sum = 0;
        for (int64_t j = 0; j < a.keys; ++j) {
          double s = a.scale * dot(row(a.q, b, h, i), row(a.k, b, kv, j), a.d_k);
          if (a.mask && plant.mask)
            s += static_cast<const double*>(a.mask)[b * a.mask_step[0] + h * a.mask_step[1] + i * a.mask_step[2] + j * a.mask_step[3]];
          if (a.causal && plant.causal && j > i + a.keys - a.queries + plant.diagonal) s = -INFINITY;
          top = std::max(top, w[static_cast<size_t>(j)] = s);
        }
        for (double& s : w) total += s = top == -INFINITY ? 0 : std::exp(s - top);
        for (double& s : w) s = total > 0 ? s / total : 0;
        const double* m = drop.data() + ((b * a.heads + h) * a.queries + i) * a.keys;
        for (int64_t j = 0; j < a.keys; ++j) {
          const auto k = static_cast<size_t>(j);
          dw[k] = (plant.drop_w ? m[j] : 1) * dot(row(d.dy, b, h, i), row(a.v, b, kv, j), a.d_v);
          sum += w[k] * dw[k];
        }
        for (int64_t j = 0; j < a.keys; ++j) {
          if (j == plant.skipped_key) continue;
          const auto k = static_cast<size_t>(j);
          const double ds = w[k] * (plant.own * dw[k] - plant.sum * sum);
          add_to(row(d.dv, b, h, j), w[k] * (plant.drop_v ? m[j] : 1), row(d.dy, b, h, i), a.d_v);
          add_to(row(d.dq, b, h, i), (plant.scale_q ? a.scale : 1) * ds, row(a.k, b, kv, j), a.d_k);
          add_to(row(d.dk, b, h, j), (plant.scale_k ? a.scale : 1) * ds, row(a.q, b, h, i), a.d_k);
        }
      }
    }
}

void attention(Mutants& all) {
  const auto mutant = [&](const char* change, auto make, const char* otherwise = "") {
    add(all, "attention_backward", &KernelTable::attention_backward, change,
        [](const Attention& a, const AttentionGradients& d) { attention_backward(a, d, decltype(make){}(a)); }, otherwise);
  };
  using A = const Attention&;
  using P = AttentionPlant;
  mutant("dw left out of ds", [](A) { return P{.own = 0}; });
  mutant("sum(w dw) left out of ds", [](A) { return P{.sum = 0}; });
  mutant("scale left out of dq", [](A) { return P{.scale_q = false}; });
  mutant("scale left out of dk", [](A) { return P{.scale_k = false}; });
  mutant("dropout left out of dv", [](A) { return P{.drop_v = false}; }, "nothing is dropped");
  mutant("dropout left out of dw", [](A) { return P{.drop_w = false}; }, "nothing is dropped");
  mutant("mask left out", [](A) { return P{.mask = false}; }, "there is no mask");
  mutant("causal limit left out", [](A) { return P{.causal = false}; }, "there is no causal limit");
  mutant("causal limit one higher", [](A) { return P{.diagonal = 1}; }, "there is no causal limit");
  mutant("causal limit one lower", [](A) { return P{.diagonal = -1}; }, "there is no causal limit");
  mutant("last query left out", [](A a) { return P{.skipped_query = a.queries - 1}; }, "the last query sees no key");
  mutant("first key left out", [](A) { return P{.skipped_key = 0}; });
  mutant("last key left out", [](A a) { return P{.skipped_key = a.keys - 1}; });
  mutant("keys and values of the next head", [](A) { return P{.head_shift = 1}; }, "there is one head");
}

}  // namespace

int64_t planted_calls() { return calls; }

const std::vector<KernelMutant>& kernel_mutants() {
  static const std::vector<KernelMutant> table = [] {
    real();  // before anything is planted
    Mutants all;
    elementwise(all);
    arithmetic(all);
    moving(all);
    products(all);
    norms(all);
    tables(all);
    attention(all);
    return all;
  }();
  return table;
}

}  // namespace bonsai
