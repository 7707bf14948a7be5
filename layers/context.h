// What a forward pass is told beside its input: small, copied to replay a pass.
#pragma once

#include "framework/core/rng.h"

namespace bonsai {

struct Context {
  bool training = false;       // dropout is active
  int64_t first_position = 0;  // of the first token in the sequence
  RandomStream random = {};    // dropout draws from it
};

}  // namespace bonsai
