// Decoders from files of other libraries.
#pragma once

#include "framework/io/gpt2.h"
#include "layers/decoder.h"

namespace bonsai {

// The decoder that a GPT-2 directory describes; an error for settings it does not have.
DecoderConfig decoder_config(const Gpt2Settings& settings);

// Its weights, into a decoder of that config and any dtype:
//   Gpt2Directory directory("gpt2");
//   Module root;
//   Decoder decoder{&root, "", decoder_config(directory.settings())};
//   load_weights(directory, decoder);
void load_weights(const Gpt2Directory& directory, Decoder& decoder);

}  // namespace bonsai
