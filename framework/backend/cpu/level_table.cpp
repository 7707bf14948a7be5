// Fills a kernel table with this level's functions.
#include "bonsai/framework/backend/kernels.h"

namespace bonsai::cpu::BONSAI_LEVEL {

#include "bonsai/framework/backend/fill_table.def"

}  // namespace bonsai::cpu::BONSAI_LEVEL
