#include "bonsai/layers/norm/rms_norm.h"

namespace bonsai {

void register_rms_norm() { add_part<NormKind, RMSNorm, Keys<RMSNormConfig>>("rms_norm"); }

}  // namespace bonsai
