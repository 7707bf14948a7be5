// Fills a kernel table with the functions of one element type.
#include "framework/backend/kernels.h"

namespace bonsai::cuda::BONSAI_LEVEL {

#define KERNEL(name, arguments) void name arguments;
#define OP(name, functor, saves, domain) \
  void name(View x, MutView y);          \
  void name##_backward(View saved, View dy, MutView dx);
#include "framework/backend/kernels.def"
BONSAI_ELEMENTWISE(OP)
#undef OP
#undef KERNEL

void fill_table(KernelTable& t) {
#define KERNEL(name, arguments) t.name.run = name;
#define OP(name, functor, saves, domain) t.name.run = name, t.name##_backward.run = name##_backward;
#include "framework/backend/kernels.def"
  BONSAI_ELEMENTWISE(OP)
#undef OP
#undef KERNEL
}

}  // namespace bonsai::cuda::BONSAI_LEVEL
