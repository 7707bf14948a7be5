#include "bonsai/layers/model/model.h"

#include <algorithm>

#include "bonsai/layers/model/transformer.h"

namespace bonsai {

Tensor Model::last_logits(const Tensor& ids, Context& context) {
  const Tensor logits = (*this)(ids, context);
  const int64_t time = logits.size(1);
  return reshape(slice(logits, 1, time - 1, time), {logits.size(0), logits.size(2)});
}

Tensor Model::encode(Context&) { fail("model", "{} has no encoder, so it cannot read a source", path()); }

Tensor Model::encode_embedding(const Tensor&, Context&) {
  fail("model", "{} has no encoder, so it cannot read a source", path());
}

std::unique_ptr<Model> ModelConfig::make(Module* parent, std::string name) const {
  check(vocab_size != 0, kind.name(), "vocab_size is 0; the model needs at least 1");
  return kind.make(parent, std::move(name), ModelContext{vocab_size, block_size});
}

double parameter_count(const ModelConfig& c) {
  const int64_t vocab_size = std::max<int64_t>(1, c.vocab_size);
  if (const auto* transformer = c.kind.find<TransformerKeys>()) {
    TransformerConfig whole = *transformer;
    whole.vocab_size = vocab_size, whole.block_size = c.block_size;
    return parameter_count(whole);
  }
  Module root({.shapes_only = true});
  return element_count(*c.kind.make(&root, "", ModelContext{vocab_size, c.block_size}));
}

ModelConfig shortened(ModelConfig c, int64_t max_layers) {
  if (!c.kind.find<TransformerKeys>()) return c;
  auto& transformer = c.kind.as<TransformerKeys>();
  transformer.n_layers = std::min(transformer.n_layers, max_layers);
  transformer.n_encoder_layers = std::min(transformer.n_encoder_layers, max_layers);
  return c;
}

}  // namespace bonsai
