#include "bonsai/layers/norm/layer_norm.h"

namespace bonsai {

void register_layer_norm() { add_part<NormKind, LayerNorm, Keys<LayerNormConfig>>("layer_norm"); }

}  // namespace bonsai
