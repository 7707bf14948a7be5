// ALiBi: each head subtracts slope * (query position - key position) from its scores. This penalises distance
// if attention is causal; otherwise, later keys would be favoured.   Press et al. 2022, arXiv:2108.12409
#include "bonsai/layers/registry.h"

namespace bonsai {
namespace {

class Alibi final : public Position {
 public:
  Alibi(Module* parent, std::string name, NoKeys) : Position(parent, std::move(name)) {}

  void set_scores(AttentionOptions& options) override {
    if (!slopes_ || slopes_.elements() != options.n_heads || first_head_ != options.first_head)
      first_head_ = options.first_head,
      slopes_ = alibi_slopes(options.first_head, options.n_heads, options.all_heads, build().dtype,
                             build().device);
    options.alibi = slopes_;
  }

 private:
  Tensor slopes_;
  int64_t first_head_ = 0;
};

}  // namespace

void register_alibi() { add_part<PositionKind, Alibi>("alibi"); }

}  // namespace bonsai
