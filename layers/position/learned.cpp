#include "bonsai/layers/position/learned.h"

namespace bonsai {

void register_learned() { add_part<PositionKind, LearnedPositions, Keys<PositionConfig>>("learned"); }

}  // namespace bonsai
