// Fills a kernel table with this level's functions.
#include "framework/backend/kernels.h"

namespace bonsai::cpu::BONSAI_LEVEL {

#include "framework/backend/fill_table.def"

}  // namespace bonsai::cpu::BONSAI_LEVEL
