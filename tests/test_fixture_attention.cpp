// Attention against reference values from PyTorch, by the fused op and by the layer's composed path.
#include "bonsai/framework/ops/ops.h"
#include "bonsai/layers/attention/multi_head.h"
#include "bonsai/tests/fixture.h"

namespace bonsai::test {
namespace {

const OpCase& attention_row() {
  for (const OpCase& row : op_cases())
    if (row.op == "scaled_dot_product_attention" && row.reference) return row;
  throw Error("the op table has no reference for attention");
}

void check_attention(Fixture& f, DType dtype) {
  {
    Tape tape;
    const ReferenceCase c = f.inputs(tape, dtype);
    f.expect_all(tape, c, attention_row().reference(c), dtype, /*exact_zeros=*/true);
  }
  for (const bool with_weights : {false, true}) {
    Tape tape;
    const ReferenceCase c = f.inputs(tape, dtype);
    Module root({.dtype = dtype});
    ScaledDotProductAttention layer{&root, "attention", {.causal = f.setting("causal") == "True",
                                     .window = static_cast<int64_t>(c.number("window", 0)),
                                     .scale = c.number("scale", 0)}};
    Context context;
    const Tensor mask = c.has("mask") ? c["mask"] : Tensor();
    if (with_weights) {
      const AttentionResult r = layer.with_weights(c["q"], c["k"], c["v"], context, mask);
      f.expect("out.weights", r.weights, dtype, /*exact_zeros=*/true);
      f.expect_all(tape, c, r.output, dtype, /*exact_zeros=*/true);
    } else {
      f.expect_all(tape, c, layer(c["q"], c["k"], c["v"], context, mask), dtype, /*exact_zeros=*/true);
    }
  }
}

void check_rope(Fixture& f, DType dtype) {
  Tape tape;
  const ReferenceCase c = f.inputs(tape, dtype);
  f.expect_all(tape, c, rope(c["q"], {.theta = c.number("theta", 0)}), dtype);
}

// PyTorch stores the query, key and value weights as thirds of the rows of in_proj_weight.
Tensor third(const Tensor& packed, int i) {
  const int64_t n = packed.size(0) / 3;
  return slice(packed, 0, i * n, (i + 1) * n);
}

void check_multi_head(Fixture& f, DType dtype) {
  for (const bool with_weights : {false, true}) {
    Tape tape;
    const ReferenceCase c = f.inputs(tape, dtype);
    Module root({.dtype = dtype});
    const auto width = static_cast<int64_t>(c.number("embed_dim", 0)),
               heads = static_cast<int64_t>(c.number("num_heads", 0));
    MultiHeadAttention layer{
        &root, "attention", {.d_model = width, .n_heads = heads, .causal = f.setting("causal") == "True"}};
    Linear* packed[] = {&layer.query, &layer.key, &layer.value};
    for (int i = 0; i < 3; ++i) {
      copy_into(third(c["in_proj_weight"].detach(), i), packed[i]->weight->value);
      copy_into(third(c["in_proj_bias"].detach(), i), packed[i]->bias->value);
    }
    copy_into(c["out_proj.weight"].detach(), layer.output.weight->value);
    copy_into(c["out_proj.bias"].detach(), layer.output.bias->value);

    const Tensor query = c["query"], other = c.has("key_value") ? c["key_value"] : query;
    Context context;
    AttentionResult r;
    if (with_weights) {
      r = layer.with_weights(query, other, other, context);
      f.expect("out.weights", r.weights, dtype);
    } else {
      r.output = layer(query, other, other, context);
    }
    f.expect("out.y", r.output, dtype);
    tape.backward(r.output, f.read("grad_out.y", dtype));
    f.expect("grad.query", tape.gradient(query), dtype);
    if (c.has("key_value")) f.expect("grad.key_value", tape.gradient(other), dtype);
    f.expect("grad.out_proj.weight", layer.output.weight->grad, dtype);
    f.expect("grad.out_proj.bias", layer.output.bias->grad, dtype);
    f.expect("grad.in_proj_weight",
             concat({layer.query.weight->grad, layer.key.weight->grad, layer.value.weight->grad}, 0), dtype);
    f.expect("grad.in_proj_bias",
             concat({layer.query.bias->grad, layer.key.bias->grad, layer.value.bias->grad}, 0), dtype);
  }
}

TEST(FixtureAttention, AgreesWithPyTorchOnEveryPath) {
  const auto names = fixture_names("attention");
  ASSERT_GE(names.size(), 15u);
  for (const std::string& name : names) {
    Fixture f(name);
    for (const DType dtype : {DType::f64, DType::f32})
      f.setting("op") == "multi_head_attention" ? check_multi_head(f, dtype)
      : f.setting("op") == "rope"               ? check_rope(f, dtype)
                                                : check_attention(f, dtype);
    expect_all_read(f, name);
    printf("%s\n", name.c_str());
  }
}

}  // namespace
}  // namespace bonsai::test
