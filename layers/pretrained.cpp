#include "layers/pretrained.h"

#include "framework/autograd/dispatch.h"

namespace bonsai {

DecoderConfig decoder_config(const Gpt2Settings& s) {
  check(s.embd_pdrop == s.resid_pdrop && s.attn_pdrop == s.resid_pdrop, "gpt2",
        "embd_pdrop {}, attn_pdrop {} and resid_pdrop {} differ; the decoder has one dropout", s.embd_pdrop,
        s.attn_pdrop, s.resid_pdrop);
  return {.vocab_size = s.vocab_size,
          .block_size = s.n_positions,
          .n_layers = s.n_layer,
          .n_heads = s.n_head,
          .d_model = s.n_embd,
          .d_hidden = s.n_inner,
          .dropout = s.resid_pdrop,
          .activation = s.activation,
          .norm_eps = s.layer_norm_epsilon,
          .tie_embeddings = s.tied};
}

void load_weights(const Gpt2Directory& directory, Decoder& decoder) {
  const std::string prefix = decoder.path().empty() ? "" : decoder.path() + ".";
  std::vector<std::pair<Parameter*, Tensor>> read;  // all of them, before any is changed
  for (const Gpt2Weight& weight : directory.weights()) {
    Parameter& parameter = decoder.parameter(prefix + weight.path);
    read.emplace_back(&parameter, directory.read(weight, parameter.value.dtype()));
    check(read.back().second.shape() == parameter.value.shape(), "gpt2", "{} gives {} for {}", weight.stored,
          read.back().second, parameter.value);
  }
  check(read.size() == decoder.parameters().size(), "gpt2", "the directory gives {} of the decoder's {} parameters",
        read.size(), decoder.parameters().size());
  for (auto& [parameter, value] : read) copy_into(value, parameter->value);
}

}  // namespace bonsai
