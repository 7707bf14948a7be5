// Op table rows of attention and rotary positions.
#include <cmath>

#include "bonsai/framework/checks/op_case_inputs.h"
#include "bonsai/framework/ops/ops.h"

namespace bonsai {
namespace {

OpCase attention_row(std::string variant, Input q, Input k, Input v, AttentionOptions o) {
  return {.op = "scaled_dot_product_attention",
          .variant = std::move(variant),
          .inputs = {q, k, v},
          .call = [o](In in) { return scaled_dot_product_attention(in[0], in[1], in[2], o); },
          .composed = [o](In in) { return composed_attention(in[0], in[1], in[2], o).output; }};
}

// A row whose options contain tensors, which have the dtype of its inputs.
OpCase attention_row(std::string variant, std::vector<Input> inputs,
                     std::function<AttentionOptions(In)> options) {
  return {
      .op = "scaled_dot_product_attention",
      .variant = std::move(variant),
      .inputs = std::move(inputs),
      .call = [options](In in) { return scaled_dot_product_attention(in[0], in[1], in[2], options(in)); },
      .composed = [options](In in) { return composed_attention(in[0], in[1], in[2], options(in)).output; }};
}

AttentionOptions attention_options(Ref r) {
  AttentionOptions o;
  o.mask.causal = r.text("causal", "False") == "True";
  o.mask.window = static_cast<int64_t>(r.number("window", 0));
  o.scale = r.number("scale", 0);
  if (r.has("mask")) o.bias = r["mask"];
  return o;
}

}  // namespace

void add_attention(std::vector<OpCase>& rows) {
  rows.push_back(attention_row("", normal(2, 3, 4, 5), normal(2, 3, 4, 5), normal(2, 3, 4, 5), {}));
  rows.back().reference = [](Ref r) {
    return scaled_dot_product_attention(r["q"], r["k"], r["v"], attention_options(r));
  };
  rows.push_back(
      {.op = "composed_attention",
       .inputs = {normal(2, 2, 3, 4), normal(2, 2, 5, 4), normal(2, 2, 5, 3)},
       .call =
           [](In in) { return composed_attention(in[0], in[1], in[2], {.mask = {.causal = true}}).output; },
       .reference =
           [](Ref r) { return composed_attention(r["q"], r["k"], r["v"], attention_options(r)).output; }});
  rows.push_back(
      attention_row("other sizes", normal(2, 2, 3, 4), normal(2, 2, 6, 4), normal(2, 2, 6, 5), {}));
  rows.push_back(attention_row("causal, more keys", normal(1, 2, 3, 4), normal(1, 2, 5, 4),
                               normal(1, 2, 5, 2), {.mask = {.causal = true}}));
  rows.push_back(attention_row("causal, more queries", normal(1, 2, 5, 4), normal(1, 2, 3, 4),
                               normal(1, 2, 3, 2), {.mask = {.causal = true}}));
  rows.push_back(attention_row("heads in columns", normal(2, 4, 6), normal(2, 5, 6), normal(2, 5, 9),
                               {.n_heads = 3, .scale = 0.4}));
  rows.push_back(attention_row("dropout", normal(2, 2, 4, 3), normal(2, 2, 4, 3), normal(2, 2, 4, 3),
                               {.mask = {.causal = true}, .dropout = 0.4, .key = kKey}));
  rows.push_back(attention_row("causal window", normal(1, 2, 6, 3), normal(1, 2, 6, 3), normal(1, 2, 6, 3),
                               {.mask = {.causal = true, .window = 2}}));
  rows.push_back(attention_row("window to both sides", normal(1, 2, 4, 3), normal(1, 2, 7, 3),
                               normal(1, 2, 7, 3), {.mask = {.window = 3}}));
  rows.push_back(attention_row("grouped heads", normal(2, 4, 3, 4), normal(2, 2, 5, 4), normal(2, 2, 5, 3),
                               {.mask = {.causal = true}}));
  rows.push_back(attention_row("grouped heads in columns", normal(2, 4, 12), normal(2, 4, 4), normal(2, 4, 6),
                               {.n_heads = 6, .n_kv_heads = 2}));
  rows.push_back(attention_row("soft cap", normal(2, 2, 3, 4).scaled(2), normal(2, 2, 4, 4).scaled(2),
                               normal(2, 2, 4, 4), {.logit_softcap = 1.5}));
  // Hides key 1 from all queries and every key from query 2; the other elements are finite.
  const std::vector<double> bias = {0, -INFINITY, 0.5, 0, -INFINITY, -1, -INFINITY, -INFINITY, -INFINITY};
  rows.push_back(attention_row("bias with an empty row",
                               {normal(2, 2, 3, 4), normal(2, 2, 3, 4), normal(2, 2, 3, 4)}, [bias](In in) {
                                 AttentionOptions o;
                                 o.bias = tensor({1, 1, 3, 3}, bias, in[0].dtype(), in[0].device());
                                 return o;
                               }));
  rows.push_back(attention_row("learned bias of heads",
                               {normal(2, 3, 4, 2), normal(2, 3, 5, 2), normal(2, 3, 5, 3), normal(3, 1, 5)},
                               [](In in) {
                                 AttentionOptions o;
                                 o.mask.causal = true, o.bias = in[3], o.logit_softcap = 2;
                                 return o;
                               }));
  for (const Input& learned : {normal(2, 1, 4, 5), normal(3, 4, 5)})
    rows.push_back(attention_row(learned.shape.rank == 4 ? "learned bias of batch entries and queries"
                                                         : "learned bias of heads and queries",
                                 {normal(2, 3, 4, 2), normal(2, 3, 5, 2), normal(2, 3, 5, 3), learned},
                                 [](In in) {
                                   AttentionOptions o;
                                   o.bias = in[3], o.dropout = 0.2, o.key = kKey;
                                   return o;
                                 }));
  rows.push_back(attention_row("some of all heads, dropout", normal(2, 2, 4, 3), normal(2, 1, 4, 3),
                               normal(2, 1, 4, 3),
                               {.dropout = 0.4, .key = kKey, .first_head = 3, .all_heads = 6}));
  rows.push_back(attention_row("padding, documents, alibi, grouped heads, dropout",
                               {normal(2, 4, 4, 2), normal(2, 2, 5, 2), normal(2, 2, 5, 3)}, [](In in) {
                                 AttentionOptions o;
                                 const auto ids = [device = in[0].device()](
                                                      const Shape& shape, const std::vector<double>& values) {
                                   return tensor(shape, values, DType::i32, device);
                                 };
                                 o.mask = {.causal = true,
                                           .window = 4,
                                           .padding_mask = ids({2, 5}, {1, 1, 0, 1, 1, 0, 0, 1, 1, 1}),
                                           .query_segment_ids = ids({2, 4}, {1, 1, 1, 2, 4, 4, 4, 4}),
                                           .key_segment_ids = ids({2, 5}, {1, 1, 1, 1, 2, 3, 4, 4, 4, 4})};
                                 o.alibi = alibi_slopes(0, 4, 4, in[0].dtype(), in[0].device());
                                 o.dropout = 0.3, o.key = kKey;
                                 return o;
                               }));
  rows.push_back(
      {.op = "alibi_slopes", .inputs = {normal(3, 2, 2)}, .call = [](In in) {
         return mul(in[0], reshape(alibi_slopes(1, 3, 4, in[0].dtype(), in[0].device()), {3, 1, 1}));
       }});
  for (const bool interleaved : {false, true})
    rows.push_back(
        {.op = "rope",
         .variant = interleaved ? "interleaved, heads in columns" : "",
         .inputs = {interleaved ? normal(2, 3, 8) : normal(2, 2, 3, 4)},
         .call = [interleaved](In in) {
           return rope(
               in[0], {.n_heads = interleaved ? 2 : 1, .first = 5, .theta = 100, .interleaved = interleaved});
         }});
  rows[rows.size() - 2].reference = [](Ref r) { return rope(r["q"], {.theta = r.number("theta", 10000)}); };
}

}  // namespace bonsai
