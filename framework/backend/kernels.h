// The kernel table: a struct of functions, with one instance per device and floating dtype. Ops call kernels
// only through it, so they are independent of the device; a backend only fills it, so it is independent of
// ops.
#pragma once

#include <cstdint>

#include "bonsai/framework/backend/elementwise_list.h"
#include "bonsai/framework/backend/update_list.h"
#include "bonsai/framework/core/device.h"
#include "bonsai/framework/core/rng.h"
#include "bonsai/framework/core/view.h"

namespace bonsai {

// The arguments of kernels that take many.
namespace kernel {

struct Axes {
  int axis[kMaxRank];
};

// dst[o * dst_stride + i] (+)= src[o * src_stride + i] for o < outer, i < inner.
struct Blocks {
  const void* src;
  void* dst;
  int64_t outer, inner, src_stride, dst_stride;
  bool add;
};

// C (m, n) = alpha * op(A) op(B) + bias, or C += ... if `add` is true, for every index of up to four batch
// axes. Matrices are row-major with leading dimension ld; op(A) is (m, k), and is stored as (k, m) if
// transposed. `step` is the distance in elements between the matrices of a batch axis: a step of 0 reuses
// the operand; a c_step of 0 sums the products along that axis.
struct Gemm {
  static constexpr int kBatchAxes = kMaxRank - 2;
  struct Operand {
    const void* data;
    int64_t ld;
    bool transposed;
    int64_t step[kBatchAxes];
  };
  int64_t m, n, k;
  Operand a, b;
  void* c;
  int64_t ldc;
  int64_t c_step[kBatchAxes];
  int64_t batch[kBatchAxes] = {1, 1, 1, 1};
  const void* bias = nullptr;  // (n), added to every row
  double alpha = 1;
  bool add = false;
};

enum class Comparison { greater, greater_equal, equal };  // of a to b; false where either is NaN

struct CrossEntropy {
  double label_smoothing;
  int64_t ignore_index;
  bool mean;
};

// Row (b, h, t) of an operand starts at data + b * batch + h * head + t * row, in elements.
struct Heads {
  void* data;
  int64_t batch, head, row;
};

// y = dropout(softmax(scores)) v for each batch entry and head, where scores = cap(scale * q k^T) + bias -
// slope * (query position - key position), or -inf if the query may not attend to the key. The last query has
// the position of the last key. Head h reads key/value head h / (heads / kv_heads).
struct Attention {
  int64_t batch, heads, kv_heads, queries, keys, d_k, d_v;
  Heads q, k, v, y;
  double scale;
  double logit_softcap;              // cap(s) = logit_softcap * tanh(s / logit_softcap); 0 disables it
  bool causal;                       // queries attend to no later key
  int64_t window;                    // queries attend only to keys at a distance below it; 0 disables it
  const int32_t* padding_mask;       // (batch, keys): 0 hides the key; null: none
  const int32_t* query_segment_ids;  // (batch, queries); queries attend only to keys with the same id
  const int32_t* key_segment_ids;    // (batch, keys); both null: none
  const void* slopes;                // (heads); null: none
  const void* bias;                  // null: none
  int64_t bias_step[4];              // strides of (batch, head, query, key); 0 for a broadcast axis
  double dropout;
  RandomKey key;  // element index: ((b * all_heads + first_head + h) * queries + i) * keys + j
  int64_t first_head, all_heads;  // these are heads [first_head, first_head + heads) of all_heads
  void* stats;  // (batch, heads, queries, 2): each row's largest score and sum of exponentials
};

struct AttentionGradients {
  Heads dy, dq, dk, dv;
  void* dbias;  // strides bias_step; the kernel adds to it, so it must start as zeros; null: not needed
};

// The numbers of a step that are known before it.
struct StepNumbers {
  double scale = 1;  // of the gradients as they lie in memory: 1 / tokens
  double learning_rate = 0;
  double by_step[2] = {1,
                       1};  // what the optimizer computes from the step's number, as Adam's bias corrections
};

// What changes from step to step. It lies in the device's memory: kernels take a pointer to it, and the host
// reads it when it logs.
struct StepState : StepNumbers {
  double loss = 0;           // the sum over the step's tokens
  double gradient_norm = 0;  // of the scaled gradients, before clipping
  double factor = 1;         // of the gradients: scale and clipping
  int64_t finite = 1;        // 0: the loss or the norm is not finite, and no parameter is changed
};

// The state of an optimizer that an update reads and writes, element by element. A slot that it does not have
// is null.
struct Slots {
  MutView slot[kMaxSlots];
};

}  // namespace kernel

// The first id out of range that a kernel found, as a device reports it to the host. `count` is 0 if there is
// none.
struct IndexError {
  int64_t count = 0, position = 0, value = 0, limit = 0;
  int64_t op = 0;  // 0 embedding, 1 cross_entropy, 2 gather, 3 scatter_add
};

// One entry of the table.
[[noreturn]] void report_missing_kernel(const char* kernel, Device device, DType dtype);

template <class Signature>
struct Kernel;
template <class... Args>
struct Kernel<void(Args...)> {
  void (*run)(Args...) = nullptr;  // null if this backend does not have the kernel
  const char* name = "";
  Device device;
  DType dtype = DType::f32;

  void operator()(Args... args) const {
    if (!run) [[unlikely]]
      report_missing_kernel(name, device, dtype);
    run(args...);
  }
};

struct KernelTable {
#define KERNEL(name, arguments) Kernel<void arguments> name;
#define OP(name, functor, saves, domain) \
  Kernel<void(View x, MutView y)> name;  \
  Kernel<void(View saved, View dy, MutView dx)> name##_backward;
#include "bonsai/framework/backend/kernels.def"
  BONSAI_ELEMENTWISE(OP)
#undef OP
#undef KERNEL

  // f(kernel) for every entry.
  template <class F>
  void for_each(F&& f) {
#define KERNEL(name, arguments) f(#name, name);
#define OP(name, functor, saves, domain) f(#name, name), f(#name "_backward", name##_backward);
#include "bonsai/framework/backend/kernels.def"
    BONSAI_ELEMENTWISE(OP)
#undef OP
#undef KERNEL
  }
};

}  // namespace bonsai
