#include "bonsai/trainers/optimizer/adamw.h"

namespace bonsai {

void register_adamw() { add_part<OptimizerKind, AdamW, AdamWConfig>("adamw"); }

}  // namespace bonsai
