// Decoders from files of other libraries.
#pragma once

#include "framework/io/hugging_face.h"
#include "layers/decoder.h"

namespace bonsai {

// The decoder that a directory of GPT-2 or Llama describes; an error for settings it does not have.
DecoderConfig decoder_config(const HuggingFaceDirectory& directory);

// Its weights, into a decoder of that config and any dtype:
//   HuggingFaceDirectory directory("gpt2");
//   Module root;
//   Decoder decoder{&root, "", decoder_config(directory)};
//   load_weights(directory, decoder);
void load_weights(const HuggingFaceDirectory& directory, Decoder& decoder);

}  // namespace bonsai
