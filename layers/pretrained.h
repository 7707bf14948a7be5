// Loads decoders in the Hugging Face format.
#pragma once

#include "bonsai/framework/io/hugging_face.h"
#include "bonsai/layers/model/transformer.h"

namespace bonsai {

// Returns the config of the GPT-2 or Llama model in a directory. Throws Error for unsupported settings.
TransformerConfig transformer_config(const HuggingFaceDirectory& directory);

// Copies the weights of the directory into a decoder of that config and any dtype:
//   HuggingFaceDirectory directory("gpt2");
//   Module root;
//   Transformer model{&root, "", transformer_config(directory)};
//   load_weights(directory, model);
void load_weights(const HuggingFaceDirectory& directory, Transformer& transformer);

}  // namespace bonsai
