#include "bonsai/framework/checks/op_case_inputs.h"

#include <cmath>

#include "bonsai/framework/ops/ops.h"

namespace bonsai {
namespace {

int axis_of(Ref r) { return static_cast<int>(r.number("dim", -1)); }
bool keep_of(Ref r) { return r.text("keepdim", "False") == "True"; }

std::vector<int64_t> numbers(const std::string& text) {
  std::vector<int64_t> all;
  for (size_t at = 0; at < text.size();) {
    size_t used = 0;
    all.push_back(std::stoll(text.substr(at), &used));
    at += used + 1;
  }
  return all;
}

// Rows of the identity matrix, with which composed forms write an embedding or a target distribution.
Tensor one_hot(const Tensor& ids, int64_t classes, DType dtype) {
  std::vector<double> values(static_cast<size_t>(ids.elements() * classes));
  const std::vector<double> at = ids.values();
  for (size_t i = 0; i < at.size(); ++i) values[i * classes + static_cast<size_t>(at[i])] = 1;
  Shape shape = ids.shape();
  shape.dim[shape.rank++] = classes;
  return tensor(shape, values, dtype);
}

Tensor composed_layer_norm(const Tensor& x, const Tensor& w, const Tensor& b, double eps) {
  const Tensor d = sub(x, mean(x, -1, true));
  const Tensor var = mean(mul(d, d), -1, true);
  const Tensor y = mul(div(d, sqrt(add(var, full({}, eps, x.dtype())))), w);
  return b ? add(y, b) : y;
}

CrossEntropyOptions cross_entropy_options(Ref r) {
  return {.label_smoothing = r.number("label_smoothing", 0),
          .ignore_index = static_cast<int64_t>(r.number("ignore_index", -100)),
          .reduction =
              r.text("reduction", "mean") == "sum" ? CrossEntropyOptions::sum : CrossEntropyOptions::mean};
}

OpCase cross_entropy_row(std::string variant, CrossEntropyOptions o) {
  return {
      .op = "cross_entropy",
      .variant = std::move(variant),
      .inputs = {normal(4, 3, 5).scaled(2), ids(5, 4, 3)},
      .call = [o](In in) { return cross_entropy(in[0], in[1], o); },
      .composed =
          [o](In in) {
            const int64_t classes = in[0].size(-1);
            const DType dtype = in[0].dtype();
            const Tensor hard = scale(one_hot(in[1], classes, dtype), 1 - o.label_smoothing);
            const Tensor target =
                add(hard, full({}, o.label_smoothing / static_cast<double>(classes), dtype));
            std::vector<double> counts = in[1].values();
            double count = 0;
            for (double& c : counts) count += c = c == static_cast<double>(o.ignore_index) ? 0 : 1;
            Shape rows = in[1].shape();
            rows.dim[rows.rank++] = 1;
            const Tensor each = mul(mul(log_softmax(in[0]), target), tensor(rows, counts, dtype));
            return scale(sum(each), o.reduction == CrossEntropyOptions::sum ? -1 : -1 / count);
          },
      .reference = [](Ref r) { return cross_entropy(r["logits"], r["target"], cross_entropy_options(r)); }};
}

using Binary = Tensor (*)(const Tensor&, const Tensor&);

Tensor binary_reference(Ref r, Binary op) { return op(r["a"], r["b"]); }

// A gradient of 0 proves nothing, so rows of step functions multiply the result by the input.
template <class... N>
Input step(N... sizes) {
  return nonzero(sizes...);
}
Tensor in_row(std::string_view domain, const Tensor& x, const Tensor& y) {
  return domain == "step" ? mul(x, y) : y;
}

void add_elementwise(std::vector<OpCase>& rows) {
#define OP(name, functor, saves, domain) \
  rows.push_back({.op = #name,           \
                  .inputs = {domain(3, 2, 5)}, \
                  .call = [](In in) { return in_row(#domain, in[0], name(in[0])); }, \
                  .reference = [](Ref r) { return name(r["x"]); }});
  BONSAI_ELEMENTWISE(OP)
#undef OP
  for (OpCase& row : rows)
    if (row.op == "gelu")  // reference files have one name for both forms
      row.reference = [](Ref r) {
        return r.text("approximate", "none") == "tanh" ? gelu_tanh(r["x"]) : gelu(r["x"]);
      };

  rows.push_back({.op = "scale",
                  .inputs = {normal(4, 3)},
                  .call = [](In in) { return scale(in[0], -1.7); },
                  .composed = [](In in) { return mul(in[0], full({}, -1.7, in[0].dtype())); }});
  rows.push_back({.op = "pow", .variant = "2.5", .inputs = {positive(4, 3)}, .call = [](In in) {
                    return pow(in[0], 2.5);
                  }});
  rows.push_back({.op = "pow",
                  .variant = "3, negative base",
                  .inputs = {nonzero(4, 3)},
                  .call = [](In in) { return pow(in[0], 3); },
                  .composed = [](In in) { return mul(mul(in[0], in[0]), in[0]); }});
  rows.push_back(
      {.op = "dropout",
       .inputs = {normal(5, 7)},
       .call = [](In in) { return dropout(in[0], 0.3, kKey); },
       .composed =
           [](In in) { return mul(in[0], dropout(full(in[0].shape(), 1, in[0].dtype()), 0.3, kKey)); }});
}

void add_arithmetic(std::vector<OpCase>& rows) {
  const auto binary = [&](const char* op, Binary f, Input (*second)(int, int)) {
    const auto call = [f](In in) { return f(in[0], in[1]); };
    const auto reference = [f](Ref r) { return binary_reference(r, f); };
    rows.push_back({.op = op, .inputs = {normal(3, 4), second(3, 4)}, .call = call, .reference = reference});
    rows.push_back(
        {.op = op, .variant = "both stretched", .inputs = {normal(2, 3, 1, 4), second(5, 1)}, .call = call});
    rows.push_back({.op = op, .variant = "row", .inputs = {normal(2, 3, 4), second(1, 4)}, .call = call});
  };
  binary("add", add, normal);
  binary("sub", sub, normal);
  binary("mul", mul, normal);
  binary("div", div, nonzero);
  rows.push_back({.op = "where",
                  .inputs = {flags(2, 1, 3), normal(2, 4, 3), normal(4, 1)},
                  .call = [](In in) { return where(in[0], in[1], in[2]); }});
  rows.push_back({.op = "masked_fill",
                  .inputs = {normal(2, 4, 3), flags(4, 3)},
                  .call = [](In in) { return masked_fill(in[0], in[1], -2.5); }});
  binary("maximum", maximum, normal);
  binary("minimum", minimum, normal);
  const auto ties = [&](const char* op, Binary f) {
    rows.push_back({.op = op,
                    .variant = "ties",
                    .inputs = {normal(3, 4)},
                    .call = [f](In in) { return f(in[0], in[0]); }});
  };
  ties("maximum", maximum);
  ties("minimum", minimum);
  rows.push_back({.op = "clamp",
                  .inputs = {normal(4, 5)},
                  .call = [](In in) { return clamp(in[0], -0.4, 0.7); },
                  .composed = [](In in) {
                    const DType dtype = in[0].dtype();
                    return minimum(maximum(in[0], full({}, -0.4, dtype)), full({}, 0.7, dtype));
                  }});
}

// Ops with an i32 result have no gradient, so their rows select elements by the result. The inputs are widely
// spread so that few are near a tie.
void add_choices(std::vector<OpCase>& rows) {
  const auto chosen = [&](const char* op, Binary f, Binary same) {
    rows.push_back({.op = op,
                    .inputs = {normal(3, 1, 4).scaled(8), normal(5, 1).scaled(8)},
                    .call = [f](In in) { return where(f(in[0], in[1]), in[0], in[1]); },
                    .composed = [same](In in) { return same(in[0], in[1]); }});
  };
  chosen("gt", gt, maximum);
  chosen("ge", ge, maximum);
  chosen("lt", lt, minimum);
  chosen("le", le, minimum);
  rows.push_back({.op = "eq",
                  .inputs = {nonzero(3, 4), nonzero(3, 4)},
                  .call = [](In in) {
                    const Tensor alike = eq(sign(in[0].detach()), sign(in[1].detach()));
                    return where(alike, in[0], in[1]);
                  },
                  .composed = [](In in) {
                    const Tensor nothing = full({}, 0, in[0].dtype());
                    return where(gt(mul(in[0], in[1]), nothing), in[0], in[1]);
                  }});
  rows.push_back({.op = "argmax",
                  .inputs = {distinct(3, 4, 2)},
                  .call = [](In in) { return gather(in[0], 1, argmax(in[0], 1, true)); },
                  .composed = [](In in) { return max(in[0], 1, true); }});
  rows.push_back({.op = "gather",
                  .inputs = {normal(3, 4, 2), ids(4, 3, 5, 2)},  // five draws from four: some repeat
                  .call = [](In in) { return gather(in[0], 1, in[1]); },
                  .composed = [](In in) {
                    const Tensor x = reshape(permute(in[0], {0, 2, 1}), {3, 1, 2, 4});
                    return sum(mul(x, one_hot(in[1], 4, in[0].dtype())), -1);
                  }});
  rows.push_back({.op = "scatter_add",
                  .inputs = {normal(3, 4, 2), ids(4, 3, 5, 2), normal(3, 5, 2)},
                  .call = [](In in) { return scatter_add(in[0], 1, in[1], in[2]); },
                  .composed = [](In in) {
                    const Tensor each = mul(reshape(in[2], {3, 5, 2, 1}), one_hot(in[1], 4, in[0].dtype()));
                    return add(in[0], permute(sum(each, 1), {0, 2, 1}));
                  }});
}

void add_products(std::vector<OpCase>& rows) {
  const auto matmuls = [&](const char* variant, Input a, Input b, bool ta, bool tb) {
    rows.push_back({.op = "matmul",
                    .variant = variant,
                    .inputs = {a, b},
                    .call = [ta, tb](In in) { return matmul(in[0], in[1], ta, tb); },
                    .reference = [](Ref r) { return matmul(r["a"], r["b"]); }});
  };
  const auto einsums = [&](const char* equation, Input a, Input b) {
    rows.push_back({.op = "einsum",
                    .variant = equation,
                    .inputs = {a, b},
                    .call = [equation](In in) { return einsum(equation, in[0], in[1]); }});
  };
  einsums("ij,jk->ik", normal(3, 4), normal(4, 5));
  rows.back().composed = [](In in) { return matmul(in[0], in[1]); };
  einsums("bqhd,bkhd->bhqk", normal(2, 3, 2, 4), normal(2, 5, 2, 4));
  rows.back().composed = [](In in) {
    return matmul(permute(in[0], {0, 2, 1, 3}), permute(in[1], {0, 2, 1, 3}), false, true);
  };
  einsums("abc,bd->da", normal(2, 3, 4), normal(3, 5));
  rows.back().composed = [](In in) { return permute(matmul(sum(in[0], 2), in[1]), {1, 0}); };
  einsums("i,j->ji", normal(3), normal(4));
  rows.back().composed = [](In in) { return mul(in[0], reshape(in[1], {4, 1})); };
  matmuls("", normal(3, 4), normal(4, 5), false, false);
  matmuls("batched", normal(2, 3, 4), normal(2, 4, 5), false, false);
  matmuls("broadcast", normal(2, 1, 3, 4), normal(5, 4, 2), false, false);
  matmuls("one matrix for a batch", normal(2, 3, 3, 4), normal(4, 5), false, false);
  matmuls("a transposed", normal(2, 4, 3), normal(4, 5), true, false);
  matmuls("b transposed", normal(2, 3, 4), normal(2, 5, 4), false, true);
  matmuls("both transposed", normal(4, 3), normal(2, 5, 4), true, true);
  matmuls("square", normal(4, 4), normal(4, 4), false, false);
  rows.push_back(
      {.op = "linear",
       .inputs = {normal(2, 3, 4), normal(5, 4), normal(5)},
       .call = [](In in) { return linear(in[0], in[1], in[2]); },
       .composed = [](In in) { return add(matmul(in[0], in[1], false, true), in[2]); },
       .reference = [](Ref r) { return linear(r["x"], r["weight"], r.has("bias") ? r["bias"] : Tensor()); }});
  rows.push_back({.op = "linear",
                  .variant = "no bias, square",
                  .inputs = {normal(3, 4), normal(4, 4)},
                  .call = [](In in) { return linear(in[0], in[1]); },
                  .composed = [](In in) { return matmul(in[0], in[1], false, true); }});
  rows.push_back({.op = "linear",
                  .variant = "one weight twice",
                  .inputs = {normal(3, 4), normal(4, 4), normal(4)},
                  .call = [](In in) { return linear(linear(in[0], in[1], in[2]), in[1], in[2]); }});
}

void add_reductions(std::vector<OpCase>& rows) {
  rows.push_back({.op = "sum",
                  .inputs = {normal(3, 4, 5)},
                  .call = [](In in) { return sum(in[0], 1); },
                  .reference = [](Ref r) { return sum(r["x"], axis_of(r), keep_of(r)); }});
  rows.push_back({.op = "sum", .variant = "last axis kept", .inputs = {normal(3, 5)}, .call = [](In in) {
                    return sum(in[0], -1, true);
                  }});
  rows.push_back(
      {.op = "sum", .variant = "all", .inputs = {normal(3, 4)}, .call = [](In in) { return sum(in[0]); }});
  rows.push_back({.op = "mean",
                  .inputs = {normal(3, 4, 5)},
                  .call = [](In in) { return mean(in[0], 0); },
                  .composed = [](In in) { return scale(sum(in[0], 0), 1.0 / 3); },
                  .reference = [](Ref r) { return mean(r["x"], axis_of(r), keep_of(r)); }});
  rows.push_back(
      {.op = "mean", .variant = "all", .inputs = {normal(3, 4)}, .call = [](In in) { return mean(in[0]); }});
  for (const int64_t correction : {0, 1})
    rows.push_back({.op = "variance",
                    .variant = correction ? "unbiased, axis kept" : "",
                    .inputs = {normal(3, 5, 2)},
                    .call = [correction](In in) { return variance(in[0], 1, correction == 1, correction); },
                    .composed = [correction](In in) {
                      const Tensor square = mean(mul(in[0], in[0]), 1, correction == 1),
                                   average = mean(in[0], 1, correction == 1);
                      return scale(sub(square, mul(average, average)), correction ? 5.0 / 4 : 1);
                    }});
  rows.push_back({.op = "cumsum",
                  .inputs = {normal(3, 4, 2)},
                  .call = [](In in) { return cumsum(in[0], 1); },
                  .composed = [](In in) {
                    const std::vector<double> up_to = {1, 0, 0, 0, 1, 1, 0, 0, 1, 1, 1, 0, 1, 1, 1, 1};
                    return matmul(tensor({4, 4}, up_to, in[0].dtype()), in[0]);
                  }});
  rows.push_back({.op = "max",
                  .inputs = {distinct(3, 4, 2)},
                  .call = [](In in) { return max(in[0], 1); },
                  .reference = [](Ref r) { return max(r["x"], axis_of(r), keep_of(r)); }});
  rows.push_back({.op = "max", .variant = "ties", .inputs = {distinct(3, 4)}, .call = [](In in) {
                    return max(concat({in[0], in[0]}, 1), 1);
                  }});
}

void add_shapes(std::vector<OpCase>& rows) {
  rows.push_back({.op = "reshape", .inputs = {normal(3, 4)}, .call = [](In in) {
                    return reshape(in[0], {2, 6});
                  }});
  rows.push_back({.op = "permute", .inputs = {normal(2, 3, 4)}, .call = [](In in) {
                    return permute(in[0], {2, 0, 1});
                  }});
  rows.push_back({.op = "permute", .variant = "square", .inputs = {normal(3, 3)}, .call = [](In in) {
                    return permute(in[0], {1, 0});
                  }});
  rows.push_back(
      {.op = "slice", .inputs = {normal(3, 5, 2)}, .call = [](In in) { return slice(in[0], 1, 1, 4); }});
  rows.push_back({.op = "slice",
                  .variant = "overlapping, of the leading axis",
                  .inputs = {normal(5, 2)},
                  .call = [](In in) { return mul(slice(in[0], 0, 0, 3), slice(in[0], 0, 2, 5)); }});
  rows.push_back({.op = "concat",
                  .inputs = {normal(2, 3, 2), normal(2, 1, 2), normal(2, 2, 2)},
                  .call = [](In in) { return concat({in[0], in[1], in[2], in[0]}, 1); }});
  rows.push_back({.op = "split", .inputs = {normal(2, 6)}, .call = [](In in) {
                    const auto parts = split(in[0], 1, {1, 3, 2});
                    return mul(concat({parts[2], parts[0]}, 1), parts[1]);
                  }});
  // Reference files of shape ops are named after the whole expression.
  rows.push_back({.op = "scale(reshape(permute(x)))",
                  .inputs = {normal(2, 3, 4)},
                  .call = [](In in) { return scale(reshape(permute(in[0], {2, 1, 0}), {4, 6}), 2); },
                  .reference = [](Ref r) {
                    const auto axes = numbers(r.text("permute", ""));
                    const auto sizes = numbers(r.text("reshape", ""));
                    return scale(
                        reshape(permute(r["x"], {axes.begin(), axes.end()}), Shape(std::span(sizes))),
                        r.number("scale", 1));
                  }});
}

void add_rows_of_last_axis(std::vector<OpCase>& rows) {
  rows.push_back({.op = "softmax",
                  .inputs = {normal(3, 2, 7).scaled(2)},
                  .call = [](In in) { return softmax(in[0]); },
                  .composed = [](In in) {
                    const Tensor e = exp(sub(in[0], max(in[0], -1, true)));
                    return div(e, sum(e, -1, true));
                  },
                  .reference = [](Ref r) { return softmax(r["x"]); }});
  rows.push_back({.op = "log_softmax",
                  .inputs = {normal(3, 2, 7).scaled(2)},
                  .call = [](In in) { return log_softmax(in[0]); },
                  .composed = [](In in) { return log(softmax(in[0])); },
                  .reference = [](Ref r) { return log_softmax(r["x"]); }});
  rows.push_back(
      {.op = "layer_norm",
       .inputs = {normal(3, 2, 6), normal(6), normal(6)},
       .call = [](In in) { return layer_norm(in[0], in[1], in[2], 1e-5); },
       .composed = [](In in) { return composed_layer_norm(in[0], in[1], in[2], 1e-5); },
       .reference = [](Ref r) { return layer_norm(r["x"], r["weight"], r["bias"], r.number("eps", 1e-5)); }});
  rows.push_back({.op = "layer_norm",
                  .variant = "no bias",
                  .inputs = {normal(4, 4), normal(4)},
                  .call = [](In in) { return layer_norm(in[0], in[1], {}, 1e-5); },
                  .composed = [](In in) { return composed_layer_norm(in[0], in[1], {}, 1e-5); }});
  rows.push_back({.op = "rms_norm",
                  .inputs = {normal(3, 2, 6), normal(6)},
                  .call = [](In in) { return rms_norm(in[0], in[1], 1e-6); },
                  .composed = [](In in) {
                    const Tensor square = mean(mul(in[0], in[0]), -1, true);
                    return mul(div(in[0], sqrt(add(square, full({}, 1e-6, square.dtype())))), in[1]);
                  },
                  .reference = [](Ref r) { return rms_norm(r["x"], r["weight"], r.number("eps", 1e-6)); }});
  rows.push_back(
      {.op = "embedding",
       .inputs = {normal(4, 3), ids(4, 2, 5)},  // ten draws from four: some repeat
       .call = [](In in) { return embedding(in[0], in[1]); },
       .composed = [](In in) { return matmul(one_hot(in[1], in[0].size(0), in[0].dtype()), in[0]); },
       .reference = [](Ref r) { return embedding(r["weight"], r["ids"]); }});
  rows.push_back(cross_entropy_row("", {}));
  rows.push_back(cross_entropy_row("sum", {.reduction = CrossEntropyOptions::sum}));
  rows.push_back(cross_entropy_row("smoothed, one id ignored", {.label_smoothing = 0.1, .ignore_index = 2}));
}

std::vector<OpCase>& table() {
  static std::vector<OpCase> rows = [] {
    std::vector<OpCase> all;
    add_elementwise(all);
    add_arithmetic(all);
    add_choices(all);
    add_products(all);
    add_reductions(all);
    add_shapes(all);
    add_rows_of_last_axis(all);
    add_attention(all);
    return all;
  }();
  return rows;
}

}  // namespace

const std::vector<OpCase>& op_cases() { return table(); }

void add_op_case(OpCase row) {
  check(row.call && !row.inputs.empty(), "op case", "{} needs inputs and a call", row.name());
  for (const OpCase& other : table())
    check(other.name() != row.name(), "op case", "there are two rows {}; give one of them a variant",
          row.name());
  table().push_back(std::move(row));
}

}  // namespace bonsai
