// Fills a kernel table with the functions of one element type.
#include "framework/backend/kernels.h"

namespace bonsai::cuda::BONSAI_LEVEL {

#include "framework/backend/fill_table.def"

}  // namespace bonsai::cuda::BONSAI_LEVEL
