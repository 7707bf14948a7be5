// Decoders from files of other libraries.
#pragma once

#include "bonsai/framework/io/hugging_face.h"
#include "bonsai/layers/model/transformer.h"

namespace bonsai {

// The decoder that a directory of GPT-2 or Llama describes; an error for settings it does not have.
TransformerConfig transformer_config(const HuggingFaceDirectory& directory);

// Its weights, into a decoder of that config and any dtype:
//   HuggingFaceDirectory directory("gpt2");
//   Module root;
//   Transformer model{&root, "", transformer_config(directory)};
//   load_weights(directory, model);
void load_weights(const HuggingFaceDirectory& directory, Transformer& transformer);

}  // namespace bonsai
