// The operations that layers call. Each returns a tensor and, while a tape is open, records how its gradient
// is computed. B T C H D V: batch, time, channels, heads, head size, vocabulary.
//
// Errors: shapes or dtypes that do not fit throw an Error that names the op, both shapes and the path of a
// parameter. Floating tensors are f32 or f64 (never mixed); ids and conditions are i32.
#pragma once

#include <string>
#include <vector>

#include "bonsai/framework/autograd/fill.h"
#include "bonsai/framework/backend/elementwise_list.h"
#include "bonsai/framework/core/rng.h"
#include "bonsai/framework/core/tensor.h"

namespace bonsai {

// ---- Elementwise: neg abs sign exp log sqrt sin cos tanh sigmoid relu silu gelu gelu_tanh, and the others
// of backend/elementwise_list.h. The formulas are in backend/elementwise.h.
#define OP(name, functor, saves, domain) Tensor name(const Tensor& x);
// Applies the function of this name in backend/elementwise_list.h to every element.
BONSAI_ELEMENTWISE(OP)
#undef OP

Tensor scale(const Tensor& x, double factor);   // factor * x
Tensor pow(const Tensor& x, double exponent);   // x ^ exponent
// 0 with probability p, else x / (1-p). p = 0 gives x itself. Srivastava et al. 2014, JMLR 15.
Tensor dropout(const Tensor& x, double p, RandomKey key);

// ---- Arithmetic with broadcasting (NumPy's rule); a gradient has its operand's shape.
Tensor add(const Tensor& a, const Tensor& b);  // a + b
Tensor sub(const Tensor& a, const Tensor& b);  // a - b
Tensor mul(const Tensor& a, const Tensor& b);  // a * b
Tensor div(const Tensor& a, const Tensor& b);  // a / b
// Elements of a if the i32 condition is not 0, else of b.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
// Elements of x if keep is not 0, else `value`, whose gradient is exactly 0.
Tensor masked_fill(const Tensor& x, const Tensor& keep, double value);
// The larger or smaller of two elements, NaN if either is NaN. Equal elements share the gradient equally.
Tensor maximum(const Tensor& a, const Tensor& b);
Tensor minimum(const Tensor& a, const Tensor& b);
// x limited to [low, high], both included; outside, the gradient is 0. NaN stays. low > high is an error.
Tensor clamp(const Tensor& x, double low, double high);

// ---- Comparisons with broadcasting: i32, 1 if true, else 0; conditions for `where`. They have no gradient
// and are false for NaN.
Tensor gt(const Tensor& a, const Tensor& b);  // a > b
Tensor ge(const Tensor& a, const Tensor& b);  // a >= b
Tensor lt(const Tensor& a, const Tensor& b);  // a < b
Tensor le(const Tensor& a, const Tensor& b);  // a <= b
Tensor eq(const Tensor& a, const Tensor& b);  // a == b

// ---- Products.

// (...,M,K) x (...,K,N) -> (...,M,N). Leading axes broadcast.
Tensor matmul(const Tensor& a, const Tensor& b, bool transpose_a = false, bool transpose_b = false);
// x W^T + b: (...,K), (N,K), (N) -> (...,N).
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});
// The product of two operands, summed over each letter that the result lacks. The equation has one letter per
// axis: "ij,jk->ik" is matmul, "bhqd,bhkd->bhqk" gives attention scores. A letter may appear once per
// operand; "..." is not supported. Errors: a malformed equation, or a letter with two different sizes.
Tensor einsum(const std::string& equation, const Tensor& a, const Tensor& b);

// ---- Reductions. `keep` leaves an axis of size 1. Negative axes count from the end.
Tensor sum(const Tensor& x);  // of all elements
Tensor sum(const Tensor& x, int axis, bool keep = false);
Tensor mean(const Tensor& x);  // of all elements; an error if there are none
Tensor mean(const Tensor& x, int axis, bool keep = false);
// Ties share the gradient equally. An axis of size 0 is an error.
Tensor max(const Tensor& x, int axis, bool keep = false);

// i32: the lowest index of the largest element, or the index of the first NaN. It has no gradient. An axis of
// size 0 is an error.
Tensor argmax(const Tensor& x, int axis, bool keep = false);
// sum((x - mean)^2) / (n - correction): the population variance with 0, the unbiased estimate with 1. An axis
// of size n <= correction is an error.
Tensor variance(const Tensor& x, int axis, bool keep = false, int64_t correction = 0);
Tensor cumsum(const Tensor& x, int axis);  // element k is the sum of elements 0 to k along the axis

// ---- Elements along an axis by an i32 index, which has the sizes of x except along that axis. An index out
// of range is an error that names the index and its position.
Tensor gather(const Tensor& x, int axis, const Tensor& index);  // along the axis, y[k] = x[index[k]]
// x with values[k] added to element index[k] along the axis. values has the index's shape.
Tensor scatter_add(const Tensor& x, int axis, const Tensor& index, const Tensor& values);

// ---- Shapes. The result of reshape, and of a slice whose preceding axes all have size 1, aliases x; the
// other ops copy.
Tensor reshape(const Tensor& x, const Shape& shape);  // the number of elements must stay the same
Tensor permute(const Tensor& x, const std::vector<int>& axes);  // axis i of the result is axis axes[i] of x
// Indices [begin, end) of the axis, with 0 <= begin <= end <= size.
Tensor slice(const Tensor& x, int axis, int64_t begin, int64_t end);
Tensor concat(const std::vector<Tensor>& parts, int axis);  // the parts in order
// Parts of these sizes, which must add up to the size of the axis.
std::vector<Tensor> split(const Tensor& x, int axis, const std::vector<int64_t>& sizes);

// ---- Rows of the last axis.
Tensor softmax(const Tensor& x);      // exp(x) / sum(exp(x)); 0 for a row of only -inf
Tensor log_softmax(const Tensor& x);  // x - log(sum(exp(x)))
// (x - mean) / sqrt(var + eps) * w + b, biased variance; bias may be undefined. Ba et al. 2016,
// arXiv:1607.06450.
Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps);
// x / sqrt(mean(x^2) + eps) * w. Zhang & Sennrich 2019, arXiv:1910.07467.
Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps);

// ---- Tables and losses. An id outside the table is an error that names the id and its position.
Tensor embedding(const Tensor& table, const Tensor& ids);  // (V,C), (...) -> (...,C)

struct CrossEntropyOptions {
  double label_smoothing = 0;   // s: the target distribution is (1-s) one_hot + s/V. Szegedy et al. 2016
  int64_t ignore_index = -100;  // targets equal to this are ignored
  enum Reduction { mean, sum } reduction = mean;  // over targets that are not ignored; 0 if there are none
};
// (...,V), (...) -> ().
Tensor cross_entropy(const Tensor& logits, const Tensor& target, const CrossEntropyOptions& options = {});

// ---- Attention. Vaswani et al. 2017, arXiv:1706.03762

// Which keys a query may attend to: those that every field allows. Query i of Tq has position i + Tk - Tq, so
// the last query has the position of the last key. The output and gradients of a query that may attend to no
// key are exactly 0.
struct Mask {
  bool causal = false;  // only keys at the query's position or before it
  // w > 0: only keys at positions with |query - key| < w; with `causal`, the last w positions.
  int64_t window = 0;
  Tensor padding_mask = {};       // i32 (B,Tk): 0 marks padding, which no query may attend to
  Tensor query_segment_ids = {};  // i32 (B,Tq): only keys with the same id; needs key_segment_ids
  Tensor key_segment_ids = {};    // i32 (B,Tk)
};

struct AttentionOptions {
  // H > 0: q is (B,Tq,H*D), k (B,Tk,Hkv*D), v (B,Tk,Hkv*Dv). 0: q is (B,H,Tq,D), k (B,Hkv,Tk,D), v
  // (B,Hkv,Tk,Dv).
  int64_t n_heads = 0;
  // Hkv, if n_heads is given; 0: the same as n_heads. Head h reads key/value head h / (H / Hkv).
  // Ainslie et al. 2023, arXiv:2305.13245.
  int64_t n_kv_heads = 0;
  Mask mask = {};
  double scale = 0;        // 0: 1 / sqrt(D)
  // c: scores become c tanh(scores / c), before any bias. Gemma 2, 2024, arXiv:2408.00118.
  double logit_softcap = 0;
  // (H): slope s adds -s (query position - key position) to the scores. Press et al. 2021, arXiv:2108.12409.
  Tensor alibi = {};
  Tensor bias = {};        // added to the scores, broadcast to (B,H,Tq,Tk); -inf hides a key; differentiable
  double dropout = 0;      // probability with which an attention weight is dropped
  RandomKey key = {};
  // For model parallelism: the heads are numbers first_head, first_head + 1, ... of all_heads (0: n_heads),
  // so that dropout draws the same numbers for a head on any number of ranks.
  int64_t first_head = 0, all_heads = 0;
};
// softmax(scores) v, where scores are scale q k^T and what the options add. Stores no (Tq,Tk) tensor.
Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const AttentionOptions& options = {});

struct AttentionResult {
  Tensor output;   // as from scaled_dot_product_attention
  Tensor weights;  // (B,H,Tq,Tk), before dropout: a row sums to 1, or is 0 if the query sees no key
};
// The same function composed of simpler ops, as a reference and to get the weights.
AttentionResult composed_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                   const AttentionOptions& options = {});
// (count): ALiBi slopes 2^(-8 (h + 1) / n_heads) of the heads h from first_head to first_head + count - 1.
Tensor alibi_slopes(int64_t first_head, int64_t count, int64_t n_heads, DType dtype, Device device = {});

// Rotary position embedding: rotates pair j of each head of x (...,T,n_heads*D) by the angle position *
// theta^(-2j/D). Row t has position first + t, which may be negative. Pair j is (2j, 2j+1) if interleaved,
// else (j, j + D/2). Su et al. 2021, arXiv:2104.09864
struct RopeOptions {
  int64_t n_heads = 1;
  int64_t first = 0;
  double theta = 10000;
  bool interleaved = false;
};
Tensor rope(const Tensor& x, const RopeOptions& options = {});  // x with its pairs rotated

}  // namespace bonsai
