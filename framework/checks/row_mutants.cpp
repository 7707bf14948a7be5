// Mutants of the kernels that backward functions call: rows, tables and attention.
#include <array>

#include "bonsai/framework/backend/norm.h"
#include "bonsai/framework/checks/planting.h"

namespace bonsai::planting {
namespace {

// Calls f(offset of the row's first element, n) for every row of the last axis.
template <class F>
void rows(View x, F f) {
  const int64_t n = x.shape[-1];
  for (int64_t row = 0; row < x.shape.rows(); ++row) f(row * n, n);
}

void norms(Mutants& all) {
  // dx = y (dy - sum(y dy))
  static constexpr auto softmax = [](View y, View dy, MutView dx, double own, double others,
                                     int64_t left_out) {
    rows(y, [&](int64_t at, int64_t n) {
      const double *p = y.as<double>() + at, *d = dy.as<double>() + at;
      double sum = 0;
      for (int64_t i = 0; i < n - left_out; ++i) sum += p[i] * d[i];
      for (int64_t i = 0; i < n; ++i) dx.as<double>()[at + i] = p[i] * (own * d[i] - others * sum);
    });
  };
  add(all, &KernelTable::softmax_backward, "dy left out",
      [](View y, View dy, MutView dx) { softmax(y, dy, dx, 0, 1, 0); });
  add(all, &KernelTable::softmax_backward, "sum left out",
      [](View y, View dy, MutView dx) { softmax(y, dy, dx, 1, 0, 0); });
  add(all, &KernelTable::softmax_backward, "last term of the sum left out",
      [](View y, View dy, MutView dx) { softmax(y, dy, dx, 1, 1, 1); });
  // dx = dy - exp(y) sum(dy)
  static constexpr auto log_softmax = [](View y, View dy, MutView dx, double own, double others,
                                         int64_t left_out) {
    rows(y, [&](int64_t at, int64_t n) {
      double sum = 0;
      for (int64_t i = 0; i < n - left_out; ++i) sum += dy.as<double>()[at + i];
      for (int64_t i = 0; i < n; ++i)
        dx.as<double>()[at + i] =
            own * dy.as<double>()[at + i] - others * std::exp(y.as<double>()[at + i]) * sum;
    });
  };
  add(all, &KernelTable::log_softmax_backward, "dy left out",
      [](View y, View dy, MutView dx) { log_softmax(y, dy, dx, 0, 1, 0); });
  add(all, &KernelTable::log_softmax_backward, "exp(y) sum left out",
      [](View y, View dy, MutView dx) { log_softmax(y, dy, dx, 1, 0, 0); });
  add(all, &KernelTable::log_softmax_backward, "last term of the sum left out",
      [](View y, View dy, MutView dx) { log_softmax(y, dy, dx, 1, 1, 1); });
  // dx = rstd (w dy - mean(w dy) - x_hat mean(w dy x_hat)), dw = sum of dy x_hat, db = sum of dy
  static constexpr auto layer_norm = [](View x, View w, View stats, View dy, MutView dx, double own,
                                        double mean, double hat) {
    if (!dx.data) return;
    rows(x, [&](int64_t at, int64_t n) {
      const double *in = x.as<double>() + at, *d = dy.as<double>() + at;
      const auto s = stats.as<LayerNormStats<double>>()[at / n];
      const auto x_hat = [&](int64_t i) { return (in[i] - in[0] - s.mean) * s.rstd; };
      double sum = 0, sum_hat = 0;
      for (int64_t i = 0; i < n; ++i)
        sum += w.as<double>()[i] * d[i], sum_hat += w.as<double>()[i] * d[i] * x_hat(i);
      for (int64_t i = 0; i < n; ++i)
        dx.as<double>()[at + i] =
            s.rstd * (own * w.as<double>()[i] * d[i] - mean * sum / static_cast<double>(n) -
                      hat * x_hat(i) * sum_hat / static_cast<double>(n));
    });
  };
  add(all, &KernelTable::layer_norm_backward, "w dy left out",
      [](View x, View w, View s, View dy, MutView dx, GradView dw, GradView db) {
        real().layer_norm_backward(x, w, s, dy, {}, dw, db);
        layer_norm(x, w, s, dy, dx, 0, 1, 1);
      });
  add(all, &KernelTable::layer_norm_backward, "mean(w dy) left out",
      [](View x, View w, View s, View dy, MutView dx, GradView dw, GradView db) {
        real().layer_norm_backward(x, w, s, dy, {}, dw, db);
        layer_norm(x, w, s, dy, dx, 1, 0, 1);
      });
  add(all, &KernelTable::layer_norm_backward, "x_hat mean(w dy x_hat) left out",
      [](View x, View w, View s, View dy, MutView dx, GradView dw, GradView db) {
        real().layer_norm_backward(x, w, s, dy, {}, dw, db);
        layer_norm(x, w, s, dy, dx, 1, 1, 0);
      });
  add(all, &KernelTable::layer_norm_backward, "last row of dw left out",
      [](View x, View w, View s, View dy, MutView dx, GradView dw, GradView db) {
        View fewer = x, d = dy;
        fewer.shape = d.shape = {x.shape.rows() - 1, x.shape[-1]};
        real().layer_norm_backward(x, w, s, dy, dx, {}, db);
        real().layer_norm_backward(fewer, w, s, d, {}, dw, {});
      });
  add(
      all, &KernelTable::layer_norm_backward, "last row of db left out",
      [](View x, View w, View s, View dy, MutView dx, GradView dw, GradView db) {
        View fewer = x, d = dy;
        fewer.shape = d.shape = {x.shape.rows() - 1, x.shape[-1]};
        real().layer_norm_backward(x, w, s, dy, dx, dw, {});
        real().layer_norm_backward(fewer, w, s, d, {}, {}, db);
      },
      "the row has no bias");
  // dx = r (w dy - x r^2 mean(w dy x)), dw = sum of dy x r
  static constexpr auto rms_norm = [](View x, View w, View stats, View dy, MutView dx, double own,
                                      double pull) {
    if (!dx.data) return;
    rows(x, [&](int64_t at, int64_t n) {
      const double *in = x.as<double>() + at, *d = dy.as<double>() + at;
      const double r = stats.as<RmsNormStats<double>>()[at / n].r;
      double sum = 0;
      for (int64_t i = 0; i < n; ++i) sum += w.as<double>()[i] * d[i] * in[i];
      for (int64_t i = 0; i < n; ++i)
        dx.as<double>()[at + i] =
            r * (own * w.as<double>()[i] * d[i] - pull * in[i] * r * r * sum / static_cast<double>(n));
    });
  };
  add(all, &KernelTable::rms_norm_backward, "w dy left out",
      [](View x, View w, View s, View dy, MutView dx, GradView dw) {
        real().rms_norm_backward(x, w, s, dy, {}, dw);
        rms_norm(x, w, s, dy, dx, 0, 1);
      });
  add(all, &KernelTable::rms_norm_backward, "x r^2 mean(w dy x) left out",
      [](View x, View w, View s, View dy, MutView dx, GradView dw) {
        real().rms_norm_backward(x, w, s, dy, {}, dw);
        rms_norm(x, w, s, dy, dx, 1, 0);
      });
  add(all, &KernelTable::rms_norm_backward, "last row of dw left out",
      [](View x, View w, View s, View dy, MutView dx, GradView dw) {
        View fewer = x, d = dy;
        fewer.shape = d.shape = {x.shape.rows() - 1, x.shape[-1]};
        real().rms_norm_backward(x, w, s, dy, dx, {});
        real().rms_norm_backward(fewer, w, s, d, {}, dw);
      });
}

void tables(Mutants& all) {
  // dtable[id] += dy
  static constexpr auto scatter = [](View ids, View dy, int64_t count, GradView table, int64_t shift,
                                     bool sums) {
    const int64_t n = dy.shape[-1];
    std::fill_n(table.as<double>(), count * n, 0.0);
    for (int64_t i = 0; i < ids.shape.elements(); ++i)
      for (int64_t j = 0; j < n; ++j) {
        double& to = table.as<double>()[(ids.as<int32_t>()[i] + shift) % count * n + j];
        to = dy.as<double>()[i * n + j] + (sums ? to : 0);
      }
  };
  add(all, &KernelTable::embedding_backward, "overwritten where an id comes again",
      [](View ids, View dy, int64_t count, GradView table) { scatter(ids, dy, count, table, 0, false); });
  add(all, &KernelTable::embedding_backward, "ids off by one",
      [](View ids, View dy, int64_t count, GradView table) { scatter(ids, dy, count, table, 1, true); });
  add(all, &KernelTable::embedding_backward, "last id left out",
      [](View ids, View dy, int64_t count, GradView table) {
        View fewer = ids;
        fewer.shape = {ids.shape.elements() - 1};
        scatter(fewer, dy, count, table, 0, true);
      });
  // dlogits = dloss (softmax - target) / count, target = (1 - s) one_hot + s / V
  static constexpr auto cross_entropy = [](View logits, View target, View stats, View dloss,
                                           const kernel::CrossEntropy& o, MutView d, double soft, double hard,
                                           int64_t shift) {
    const int64_t count =
        o.mean ? target.shape.elements() - std::count(target.as<int32_t>(),
                                                      target.as<int32_t>() + target.shape.elements(),
                                                      static_cast<int32_t>(o.ignore_index))
               : 1;
    rows(logits, [&](int64_t at, int64_t n) {
      const int64_t row = at / n, id = target.as<int32_t>()[row];
      const double *s = stats.as<double>() + 2 * row,
                   factor = id == o.ignore_index
                                ? 0
                                : dloss.as<double>()[0] / static_cast<double>(std::max<int64_t>(1, count));
      for (int64_t j = 0; j < n; ++j) {
        const double p = std::exp(logits.as<double>()[at + j] - s[0]) / s[1];
        const double wanted = (1 - o.label_smoothing) * static_cast<double>(j == (id + shift) % n) +
                              o.label_smoothing / static_cast<double>(n);
        d.as<double>()[at + j] = factor * (soft * p - hard * wanted);
      }
    });
  };
  using CE = const kernel::CrossEntropy&;
  add(all, &KernelTable::cross_entropy_backward, "softmax left out",
      [](View x, View t, View s, View dl, CE o, MutView d) { cross_entropy(x, t, s, dl, o, d, 0, 1, 0); });
  add(all, &KernelTable::cross_entropy_backward, "target left out",
      [](View x, View t, View s, View dl, CE o, MutView d) { cross_entropy(x, t, s, dl, o, d, 1, 0, 0); });
  add(all, &KernelTable::cross_entropy_backward, "target off by one",
      [](View x, View t, View s, View dl, CE o, MutView d) { cross_entropy(x, t, s, dl, o, d, 1, 1, 1); });
  add(
      all, &KernelTable::cross_entropy_backward, "smoothing left out",
      [](View x, View t, View s, View dl, CE o, MutView d) {
        real().cross_entropy_backward(x, t, s, dl, {0, o.ignore_index, o.mean}, d);
      },
      "nothing is smoothed");
  add(
      all, &KernelTable::cross_entropy_backward, "ignored targets counted",
      [](View x, View t, View s, View dl, CE o, MutView d) {
        real().cross_entropy_backward(x, t, s, dl, {o.label_smoothing, -1000, o.mean}, d);
      },
      "nothing is ignored");
  add(
      all, &KernelTable::cross_entropy_backward, "1 / count left out",
      [](View x, View t, View s, View dl, CE o, MutView d) {
        real().cross_entropy_backward(x, t, s, dl, {o.label_smoothing, o.ignore_index, false}, d);
      },
      "the sum is not divided");
}

// With w = softmax(cap(scale q k^T) + bias - slope distance) and m the dropout mask: dv = (m w)^T dy,
// dw = m (dy v^T), ds = w (dw - sum(w dw)), dbias = ds; ds *= cap'; dq = scale ds k, dk = scale ds^T q.
struct AttentionPlant {
  double sum = 1, own = 1;            // factors of the two terms of ds
  bool drop_v = true, drop_w = true;  // apply m in dv and in dw
  bool causal = true, window = true, padding_mask = true, segment_ids = true, bias = true, slopes = true;
  bool scale_q = true, scale_k = true, cap_slope = true;
  int64_t diagonal = 0;  // keys by which the causal limit is too high
  int64_t wider = 0;     // keys by which the window is too wide
  int64_t skipped_query = -1, skipped_key = -1;
  int64_t kv_shift = 0;  // added to the index of the key/value head
  bool first_head = true, all_heads = true;  // draw the dropout mask with these options
  int bias_axis = -1;                        // the axis whose index is left out in dbias
  bool bias_added = true, bias_capped = false;
};

bool may_attend(const kernel::Attention& a, const AttentionPlant& plant, int64_t b, int64_t i, int64_t j) {
  const int64_t distance = i + a.keys - a.queries - j;
  if (a.causal && plant.causal && distance < -plant.diagonal) return false;
  if (a.window > 0 && plant.window && std::abs(distance) >= a.window + plant.wider) return false;
  if (a.padding_mask && plant.padding_mask && !a.padding_mask[b * a.keys + j]) return false;
  return !a.query_segment_ids || !plant.segment_ids ||
         a.query_segment_ids[b * a.queries + i] == a.key_segment_ids[b * a.keys + j];
}

void add_to_bias(const kernel::Attention& a, const kernel::AttentionGradients& d, const AttentionPlant& plant,
                 const std::array<int64_t, 4>& index, double dscore) {
  double* dbias = static_cast<double*>(d.dbias);
  for (int axis = 0; axis < 4; ++axis)
    if (axis != plant.bias_axis) dbias += index[static_cast<size_t>(axis)] * a.bias_step[axis];
  *dbias = dscore + (plant.bias_added ? *dbias : 0);
}

void attention_backward(const kernel::Attention& a, const kernel::AttentionGradients& d,
                        const AttentionPlant& plant) {
  const int64_t all_heads = plant.all_heads ? a.all_heads : a.heads,
                first_head = plant.first_head ? a.first_head : 0;
  std::vector<double> drop(static_cast<size_t>((a.batch * all_heads + first_head) * a.queries * a.keys), 1);
  const Shape all{static_cast<int64_t>(drop.size())};
  if (a.dropout > 0)
    real().dropout({drop.data(), all, DType::f64}, a.dropout, a.key, {drop.data(), all, DType::f64});
  const auto row = [](const kernel::Heads& h, int64_t b, int64_t head, int64_t t) {
    return static_cast<double*>(h.data) + b * h.batch + head * h.head + t * h.row;
  };
  const auto dot = [](const double* x, const double* y, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += x[i] * y[i];
    return sum;
  };
  const auto add_to = [](double* y, double f, const double* x, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i] += f * x[i];
  };
  const auto keys = static_cast<size_t>(a.keys);
  for (int64_t b = 0; b < a.batch; ++b)
    for (int64_t h = 0; h < a.heads; ++h) {
      const int64_t group = a.heads / a.kv_heads, own = h / group, kv = (own + plant.kv_shift) % a.kv_heads;
      for (int64_t j = 0; j < a.keys && h % group == 0; ++j)
        std::fill_n(row(d.dk, b, own, j), a.d_k, 0.0), std::fill_n(row(d.dv, b, own, j), a.d_v, 0.0);
      for (int64_t i = 0; i < a.queries; ++i) {
        std::fill_n(row(d.dq, b, h, i), a.d_k, 0.0);
        if (i == plant.skipped_query) continue;
        std::vector<double> w(keys), dw(keys), cap(keys, 1);
        double top = -INFINITY, total = 0, sum = 0;
        for (int64_t j = 0; j < a.keys; ++j) {
          double s = a.scale * dot(row(a.q, b, h, i), row(a.k, b, kv, j), a.d_k);
          if (a.logit_softcap > 0) {
            const double t = std::tanh(s / a.logit_softcap);
            s = a.logit_softcap * t, cap[static_cast<size_t>(j)] = plant.cap_slope ? 1 - t * t : 1;
          }
          if (a.slopes && plant.slopes)
            s -= static_cast<const double*>(a.slopes)[h] * static_cast<double>(i + a.keys - a.queries - j);
          if (a.bias && plant.bias)
            s += static_cast<const double*>(
                a.bias)[b * a.bias_step[0] + h * a.bias_step[1] + i * a.bias_step[2] + j * a.bias_step[3]];
          if (!may_attend(a, plant, b, i, j)) s = -INFINITY;
          top = std::max(top, w[static_cast<size_t>(j)] = s);
        }
        for (double& s : w) total += s = top == -INFINITY ? 0 : std::exp(s - top);
        for (double& s : w) s = total > 0 ? s / total : 0;
        const double* m = drop.data() + ((b * all_heads + first_head + h) * a.queries + i) * a.keys;
        for (int64_t j = 0; j < a.keys; ++j) {
          const auto k = static_cast<size_t>(j);
          dw[k] = (plant.drop_w ? m[j] : 1) * dot(row(d.dy, b, h, i), row(a.v, b, kv, j), a.d_v);
          sum += w[k] * dw[k];
        }
        for (int64_t j = 0; j < a.keys; ++j) {
          if (j == plant.skipped_key) continue;
          const auto k = static_cast<size_t>(j);
          const double dscore = w[k] * (plant.own * dw[k] - plant.sum * sum), ds = dscore * cap[k];
          if (d.dbias) add_to_bias(a, d, plant, {b, h, i, j}, plant.bias_capped ? ds : dscore);
          add_to(row(d.dv, b, own, j), w[k] * (plant.drop_v ? m[j] : 1), row(d.dy, b, h, i), a.d_v);
          add_to(row(d.dq, b, h, i), (plant.scale_q ? a.scale : 1) * ds, row(a.k, b, kv, j), a.d_k);
          add_to(row(d.dk, b, own, j), (plant.scale_k ? a.scale : 1) * ds, row(a.q, b, h, i), a.d_k);
        }
      }
    }
}

void attention(Mutants& all) {
  const auto mutant = [&](const char* change, auto make, const char* otherwise = "") {
    add(
        all, &KernelTable::attention_backward, change,
        [](const kernel::Attention& a, const kernel::AttentionGradients& d) {
          attention_backward(a, d, decltype(make){}(a));
        },
        otherwise);
  };
  using A = const kernel::Attention&;
  using P = AttentionPlant;
  constexpr const char *kNoDropout = "nothing is dropped",
                       *kNoLimit = "there is no causal limit, or nothing at it",
                       *kNoWindow = "there is no window, or nothing at its edge",
                       *kNoAxis = "no bias has a gradient, or one along this axis",
                       *kNoOthers = "nothing is dropped, or these are all heads";
  mutant("dw left out of ds", [](A) { return P{.own = 0}; });
  mutant("sum(w dw) left out of ds", [](A) { return P{.sum = 0}; });
  mutant("scale left out of dq", [](A) { return P{.scale_q = false}; });
  mutant("scale left out of dk", [](A) { return P{.scale_k = false}; });
  mutant(
      "dropout left out of dv", [](A) { return P{.drop_v = false}; }, kNoDropout);
  mutant(
      "dropout left out of dw", [](A) { return P{.drop_w = false}; }, kNoDropout);
  mutant(
      "bias left out", [](A) { return P{.bias = false}; }, "there is no bias");
  mutant(
      "ALiBi left out", [](A) { return P{.slopes = false}; }, "there are no slopes");
  mutant(
      "slope of the soft cap left out", [](A) { return P{.cap_slope = false}; }, "there is no soft cap");
  mutant(
      "padding left out", [](A) { return P{.padding_mask = false}; }, "there is no padding");
  mutant(
      "documents left out", [](A) { return P{.segment_ids = false}; }, "there are no documents");
  mutant(
      "window left out", [](A) { return P{.window = false}; }, kNoWindow);
  mutant(
      "window one wider", [](A) { return P{.wider = 1}; }, kNoWindow);
  mutant(
      "window one narrower", [](A) { return P{.wider = -1}; }, kNoWindow);
  mutant(
      "causal limit left out", [](A) { return P{.causal = false}; }, kNoLimit);
  mutant(
      "causal limit one higher", [](A) { return P{.diagonal = 1}; }, kNoLimit);
  mutant(
      "causal limit one lower", [](A) { return P{.diagonal = -1}; }, kNoLimit);
  mutant(
      "last query left out", [](A a) { return P{.skipped_query = a.queries - 1}; },
      "the last query sees no key");
  mutant(
      "first key left out", [](A) { return P{.skipped_key = 0}; }, "the first key is not seen");
  mutant("last key left out", [](A a) { return P{.skipped_key = a.keys - 1}; });
  mutant(
      "keys and values of the next head", [](A) { return P{.kv_shift = 1}; }, "there is one head");
  mutant(
      "first head left out of the dropout mask", [](A) { return P{.first_head = false}; }, kNoOthers);
  mutant(
      "other heads left out of the dropout mask", [](A) { return P{.all_heads = false}; }, kNoOthers);
  mutant(
      "batch left out of dbias", [](A) { return P{.bias_axis = 0}; }, kNoAxis);
  mutant(
      "head left out of dbias", [](A) { return P{.bias_axis = 1}; }, kNoAxis);
  mutant(
      "query left out of dbias", [](A) { return P{.bias_axis = 2}; }, kNoAxis);
  mutant(
      "key left out of dbias", [](A) { return P{.bias_axis = 3}; }, kNoAxis);
  mutant(
      "dbias overwritten", [](A) { return P{.bias_added = false}; }, "no bias has a gradient that is a sum");
  mutant(
      "slope of the soft cap in dbias", [](A) { return P{.bias_capped = true}; },
      "no bias has a gradient, or there is no soft cap");
  // Backward rotates by the negative angle.
  add(all, &KernelTable::rope, "turned forward", [](View x, View table, bool interleaved, bool, MutView y) {
    real().rope(x, table, interleaved, false, y);
  });
  add(all, &KernelTable::rope, "pairs of the other layout",
      [](View x, View table, bool interleaved, bool back, MutView y) {
        real().rope(x, table, !interleaved, back, y);
      });
}

}  // namespace

void add_row_mutants(Mutants& all) {
  norms(all);
  tables(all);
  attention(all);
}

}  // namespace bonsai::planting
