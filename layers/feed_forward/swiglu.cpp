#include "bonsai/layers/feed_forward/swiglu.h"

namespace bonsai {

void register_swiglu(FeedForwardRegistry& layers) { layers.add<SwiGLU, SwiGLUConfig>("swiglu"); }

}  // namespace bonsai
