// Fills a kernel table with the functions of one element type.
#include "bonsai/framework/backend/kernels.h"

namespace bonsai::cuda::BONSAI_LEVEL {

#include "bonsai/framework/backend/fill_table.def"

}  // namespace bonsai::cuda::BONSAI_LEVEL
