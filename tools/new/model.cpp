// my_part: a language model. `kind: my_part` in a config's model section selects it.
//
// This one has no attention: it mixes each token with the mean of all tokens up to it. Replace
// from_embedding() with a network of your own. It must not look at later positions: `bonsai audit CONFIG`
// checks that.
#include "bonsai/framework/ops/ops.h"
#include "bonsai/layers/embedding.h"
#include "bonsai/layers/linear.h"
#include "bonsai/layers/model/model.h"

namespace bonsai {
namespace {

struct MyPartConfig {
  // The run sets these.
  int64_t vocab_size = 1;
  int64_t block_size = 1;
  // The model's own keys.
  int64_t width = 32;
  template <class V>
  void visit(V& v) {
    v("width", width, "width of token vectors", at_least(1));
  }
};

class MyPart final : public Model {
 public:
  MyPart(Module* parent, std::string name, const MyPartConfig& c)
      : Model(parent, std::move(name), {c.vocab_size, c.block_size}),
        token_{this, "token", {.entries = c.vocab_size, .width = c.width, .init_std = 0.1}},
        mix_{this, "mix", {.in = 2 * c.width, .out = c.width, .init_std = 0.1}},
        head_{this, "head", {.in = c.width, .out = c.vocab_size, .init_std = 0.1}} {}

  Tensor embed(const Tensor& ids, Context& context) override { return token_(ids, context); }
  Tensor from_embedding(const Tensor& x, Context& context) override {  // (B,T,C) -> (B,T,V)
    PathScope scope(path());
    const int64_t time = x.size(1);
    std::vector<double> counts;
    for (int64_t t = 0; t < time; ++t) counts.push_back(static_cast<double>(t + 1));
    const Tensor mean_so_far = div(cumsum(x, 1), tensor({time, 1}, counts, x.dtype(), x.device()));
    const Tensor hidden = relu(mix_(concat({x, mean_so_far}, -1), context));
    return head_(add(x, hidden), context);
  }

 private:
  Embedding token_;
  Linear mix_, head_;
};

}  // namespace

void register_my_part() { add_part<ModelKind, MyPart, MyPartConfig>("my_part"); }

}  // namespace bonsai
