// my_part: an attention. `attention: my_part` in a config's model section selects it.
//
// This one has one head and takes the values as they are: softmax(q k^T / sqrt(C)) x. Replace operator() with
// a formula of your own. It must not look at later positions: `bonsai audit CONFIG` checks that.
#include "bonsai/framework/ops/ops.h"
#include "bonsai/layers/attention/scaled_dot_product.h"
#include "bonsai/layers/linear.h"
#include "bonsai/layers/registry.h"

namespace bonsai {
namespace {

struct MyPartConfig {
  // The model sets these. Fields that the attention does not need can be removed.
  int64_t d_model = 1;
  bool bias = true;
  bool causal = false;  // whether a position sees only itself and what came before
  bool cross = false;   // whether key and value are a source's
  double init_std = kInitStd, output_init_std = kInitStd;
  template <class V>
  void visit(V&) {}  // keys of its own
};

class MyPart final : public AttentionLayer {
 public:
  MyPart(Module* parent, std::string name, const MyPartConfig& c)
      : AttentionLayer(parent, std::move(name)),
        query_{this, "query", {.in = c.d_model, .out = c.d_model, .bias = c.bias, .init_std = c.init_std}},
        key_{this, "key", {.in = c.d_model, .out = c.d_model, .bias = c.bias, .init_std = c.init_std}},
        attention_{this, "attention", {.causal = c.causal, .cross = c.cross}},
        output_{this, "output", {.in = c.d_model, .out = c.d_model, .init_std = c.output_init_std}} {}

  // query (B,Tq,C), key and value (B,Tk,C) -> (B,Tq,C). In a decoder all three are the same tensor.
  Tensor operator()(const Tensor& query, const Tensor& key, const Tensor& value, Context& context,
                    const Tensor& bias) override {
    PathScope scope(path());
    AttentionOptions options = attention_.options(query.size(-1), query.size(1), context, bias);  // the masks
    options.n_heads = 1;
    const Tensor q = query_(query, context), k = key_(key, context);
    return output_(scaled_dot_product_attention(q, k, value, options), context);
  }
  bool cacheable() const override { return false; }  // it keeps nothing in a key/value cache

 private:
  Linear query_, key_;
  ScaledDotProductAttention attention_;
  Linear output_;
};

}  // namespace

void register_my_part() { add_part<AttentionKind, MyPart, MyPartConfig>("my_part"); }

}  // namespace bonsai
