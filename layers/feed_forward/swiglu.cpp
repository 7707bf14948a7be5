#include "bonsai/layers/feed_forward/swiglu.h"

namespace bonsai {

void register_swiglu() { add_part<FeedForwardKind, SwiGLU, SwiGLUConfig>("swiglu"); }

}  // namespace bonsai
