// Scaled dot-product attention as a fused op. Its backward function recomputes the weights tile by tile from
// q, k and two saved numbers per query.
#include <cmath>

#include "bonsai/framework/autograd/record.h"
#include "bonsai/framework/ops/axes.h"
#include "bonsai/framework/ops/broadcast.h"
#include "bonsai/framework/ops/ops.h"

namespace bonsai {
namespace {

constexpr const char* kOp = "scaled_dot_product_attention";

struct Args {
  int64_t n_heads, n_kv_heads, window;
  bool causal;
  double scale, logit_softcap, dropout;
  RandomKey key;
  int64_t first_head, all_heads;
};

// The saved tensors, in this order.
enum Kept { kQ, kK, kV, kBias, kStats, kPaddingMask, kQuerySegmentIds, kKeySegmentIds, kAlibi };

// Sizes and strides of one operand: (B,H,T,D), or (B,T,H*D) if n_heads is given.
struct Operand {
  int64_t batch, heads, rows, width;
  kernel::Heads heads_of;

  Operand(const Tensor& x, int64_t n_heads) : batch(x.size(0)) {
    void* data = const_cast<void*>(x.data());
    if (n_heads) {
      heads = n_heads, rows = x.size(1), width = x.size(2) / n_heads;
      heads_of = {data, rows * x.size(2), width, x.size(2)};
    } else {
      heads = x.size(1), rows = x.size(2), width = x.size(3);
      heads_of = {data, heads * rows * width, rows * width, width};
    }
  }
};

const int32_t* ids_of(const Tensor& x) { return x ? static_cast<const int32_t*>(x.data()) : nullptr; }

kernel::Attention problem(const Tensor (&t)[9], const Tensor& y, const Args& args) {
  const Operand q(t[kQ], args.n_heads), k(t[kK], args.n_kv_heads), v(t[kV], args.n_kv_heads),
      oy(y, args.n_heads);
  kernel::Attention a{};
  a.batch = q.batch, a.heads = q.heads, a.kv_heads = k.heads, a.queries = q.rows, a.keys = k.rows;
  a.d_k = q.width, a.d_v = v.width;
  a.q = q.heads_of, a.k = k.heads_of, a.v = v.heads_of, a.y = oy.heads_of;
  a.scale = args.scale, a.logit_softcap = args.logit_softcap;
  a.causal = args.causal, a.window = args.window;
  a.padding_mask = ids_of(t[kPaddingMask]), a.query_segment_ids = ids_of(t[kQuerySegmentIds]),
  a.key_segment_ids = ids_of(t[kKeySegmentIds]);
  a.slopes = view(t[kAlibi]).data;
  a.dropout = args.dropout, a.key = args.key;
  a.first_head = args.first_head, a.all_heads = args.all_heads;
  a.stats = const_cast<void*>(t[kStats].data());
  if (const Tensor& bias = t[kBias]) {
    a.bias = bias.data();
    int64_t step = 1;
    for (int i = 1; i <= bias.rank(); ++i) {
      a.bias_step[4 - i] = bias.size(-i) == 1 ? 0 : step;
      step *= bias.size(-i);
    }
  }
  return a;
}

void check_ids(const Tensor& ids, const char* what, int64_t batch, int64_t time) {
  check(!ids || (ids.dtype() == DType::i32 && ids.shape() == Shape{batch, time}), kOp,
        "{} must be i32({},{}), got {}", what, batch, time, ids);
}

// Checks all arguments and returns the shape of the scores, (B,H,Tq,Tk).
Shape checked_scores(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& o) {
  check_alike(kOp, q, k);
  check_alike(kOp, q, v);
  const int time = o.n_heads ? 1 : 2;
  for (const auto& [name, x] : {std::pair{"q", &q}, {"k", &k}, {"v", &v}})
    check_axes(kOp, name, *x, o.n_heads ? "(batch,time,channels)" : "(batch,heads,time,width)");
  const int64_t heads = o.n_heads ? o.n_heads : q.size(1);
  const int64_t kv_heads = o.n_heads ? (o.n_kv_heads ? o.n_kv_heads : heads) : k.size(1);
  check(!o.n_heads || (heads > 0 && kv_heads > 0 && q.size(2) % heads == 0 && k.size(2) % kv_heads == 0 &&
                       v.size(2) % kv_heads == 0),
        kOp, "{} heads and {} key/value heads do not divide the widths of {}, {} and {}", heads, kv_heads, q,
        k, v);
  check(kv_heads == 0 ? heads == 0 : heads % kv_heads == 0, kOp,
        "{} heads do not share {} key/value heads equally", heads, kv_heads);
  const int64_t d_k = o.n_heads ? q.size(2) / heads : q.size(3),
                k_width = o.n_heads ? k.size(2) / kv_heads : k.size(3);
  check(q.size(0) == k.size(0) && q.size(0) == v.size(0) && d_k == k_width && k.size(time) == v.size(time) &&
            (o.n_heads || k.size(1) == v.size(1)),
        kOp, "sizes do not fit: q {}, k {}, v {}", q, k, v);
  check(o.n_heads || !o.n_kv_heads, kOp, "n_kv_heads is {} without n_heads; heads of four axes are counted",
        o.n_kv_heads);
  check(!o.alibi || !recording({o.alibi}), kOp, "the slopes of ALiBi have no gradient; detach() {}", o.alibi);
  check(o.dropout >= 0 && o.dropout <= 1, kOp, "the dropout rate is {}; it must be in [0, 1]", o.dropout);
  check(o.mask.window >= 0, kOp, "the window is {}; it may not be negative", o.mask.window);
  check(std::isfinite(o.scale) && std::isfinite(o.logit_softcap) && o.logit_softcap >= 0, kOp,
        "the scale is {} and the soft cap {}; both must be finite, and the cap not negative", o.scale,
        o.logit_softcap);
  check(o.first_head >= 0 && (o.all_heads ? o.first_head <= o.all_heads - heads : o.first_head == 0), kOp,
        "{} heads from {} on are not some of {}", heads, o.first_head, o.all_heads);
  const Shape scores{q.size(0), heads, q.size(time), k.size(time)};
  check_ids(o.mask.padding_mask, "`padding_mask`", scores.dim[0], scores.dim[3]);
  check_ids(o.mask.query_segment_ids, "`query_segment_ids`", scores.dim[0], scores.dim[2]);
  check_ids(o.mask.key_segment_ids, "`key_segment_ids`", scores.dim[0], scores.dim[3]);
  check(static_cast<bool>(o.mask.query_segment_ids) == static_cast<bool>(o.mask.key_segment_ids), kOp,
        "documents are given for queries or keys alone");
  if (o.alibi) check_alike(kOp, q, o.alibi);
  check(!o.alibi || o.alibi.shape() == Shape{heads}, kOp, "ALiBi needs a slope for each of {} heads, got {}",
        heads, o.alibi);
  if (o.bias) check_alike(kOp, q, o.bias);
  check(!o.bias || broadcasts_to(o.bias.shape(), scores), kOp,
        "the bias {} does not broadcast to the scores {}", o.bias, scores);
  return scores;
}

double scale_of(const AttentionOptions& o, int64_t d_k) {
  return o.scale != 0 ? o.scale : 1 / std::sqrt(static_cast<double>(std::max<int64_t>(1, d_k)));
}

// i32 (B or 1,1,Tq,Tk): 1 if position, padding and documents let the query attend to the key, else 0.
Tensor may_attend(const Mask& m, const Shape& scores, Device device) {
  const bool by_row = m.padding_mask || m.query_segment_ids;
  const int64_t batch = by_row ? scores.dim[0] : 1, queries = scores.dim[2], keys = scores.dim[3];
  std::vector<int32_t> allowed;
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t i = 0; i < queries; ++i)
      for (int64_t j = 0; j < keys; ++j) {
        const int64_t distance = i + keys - queries - j;  // query position - key position
        bool may = !m.causal || distance >= 0;
        if (m.window > 0) may &= std::abs(distance) < m.window;
        if (m.padding_mask) may &= ids_of(m.padding_mask)[b * keys + j] != 0;
        if (m.query_segment_ids)
          may &= ids_of(m.query_segment_ids)[b * queries + i] == ids_of(m.key_segment_ids)[b * keys + j];
        allowed.push_back(may);
      }
  return from<int32_t>({batch, 1, queries, keys}, allowed, device);
}

// (B,T,H*D) -> (B,H,T,D)
Tensor apart(const Tensor& x, int64_t n_heads) {
  if (!n_heads) return x;
  return permute(reshape(x, {x.size(0), x.size(1), n_heads, x.size(2) / n_heads}), {0, 2, 1, 3});
}

// Repeats every key/value head once per head that reads it.
Tensor repeated(const Tensor& x, int64_t heads) {
  const int64_t kv_heads = x.size(1);
  if (kv_heads == heads) return x;
  const Tensor one = reshape(x, {x.size(0), kv_heads, 1, x.size(2), x.size(3)});
  const Tensor all =
      add(one, zeros({x.size(0), kv_heads, heads / kv_heads, x.size(2), x.size(3)}, x.dtype(), x.device()));
  return reshape(all, {x.size(0), heads, x.size(2), x.size(3)});
}

// Drops weights with the numbers that dropout draws for these heads of `all_heads`.
Tensor dropped(const Tensor& weights, const AttentionOptions& o) {
  if (o.all_heads <= weights.size(1) || o.dropout == 0) return dropout(weights, o.dropout, o.key);
  Shape all = weights.shape();
  all[1] = o.all_heads;
  const Tensor mask = dropout(full(all, 1, weights.dtype(), weights.device()), o.dropout, o.key);
  return mul(weights, slice(mask, 1, o.first_head, o.first_head + weights.size(1)));
}

}  // namespace

Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const AttentionOptions& o) {
  const Shape scores = checked_scores(q, k, v, o);
  const int64_t kv_heads = o.n_heads ? (o.n_kv_heads ? o.n_kv_heads : o.n_heads) : 0;
  const Args args{o.n_heads,
                  kv_heads,
                  std::min(o.mask.window, scores.dim[2] + scores.dim[3]),
                  o.mask.causal,
                  scale_of(o, o.n_heads ? q.size(2) / o.n_heads : q.size(3)),
                  o.logit_softcap,
                  o.dropout,
                  o.key,
                  o.first_head,
                  o.all_heads ? o.all_heads : scores.dim[1]};
  Shape shape = q.shape();
  shape[-1] = o.n_heads ? v.size(-1) / kv_heads * o.n_heads : v.size(-1);
  Tensor y = empty(shape, q.dtype(), q.device());
  const Tensor stats = empty({scores.dim[0] * scores.dim[1] * scores.dim[2], 2}, q.dtype(), q.device());
  const Mask& m = o.mask;
  kernels(q).attention(problem(
      {q, k, v, o.bias, stats, m.padding_mask, m.query_segment_ids, m.key_segment_ids, o.alibi}, y, args));
  return record(kOp, {q, k, v, o.bias}, y,
                {q, k, v, o.bias, stats, m.padding_mask, m.query_segment_ids, m.key_segment_ids, o.alibi},
                args, [](Tensor dy, Saved& s, Sink&, Args args) -> Grads {
                  Tensor dq = empty_like(s[kQ]), dk = empty_like(s[kK]), dv = empty_like(s[kV]), dbias;
                  if (s.needs(kBias)) dbias = zeros(s[kBias].shape(), dy.dtype(), dy.device());
                  const auto at = [](const Tensor& x, int64_t heads) { return Operand(x, heads).heads_of; };
                  const Tensor kept[9] = {s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7], s[8]};
                  kernels(dy).attention_backward(
                      problem(kept, dy, args),
                      {at(dy, args.n_heads), at(dq, args.n_heads), at(dk, args.n_kv_heads),
                       at(dv, args.n_kv_heads), dbias ? dbias.mutable_data() : nullptr});
                  return {dq, dk, dv, dbias};
                });
}

AttentionResult composed_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                   const AttentionOptions& o) {
  const Shape shape = checked_scores(q, k, v, o);
  const int64_t heads = shape.dim[1], kv_heads = o.n_kv_heads ? o.n_kv_heads : o.n_heads;
  const Tensor qh = apart(q, o.n_heads), kh = repeated(apart(k, kv_heads), heads),
               vh = repeated(apart(v, kv_heads), heads);

  Tensor scores = scale(matmul(qh, kh, false, true), scale_of(o, qh.size(-1)));
  if (o.logit_softcap > 0) scores = scale(tanh(scale(scores, 1 / o.logit_softcap)), o.logit_softcap);
  if (o.alibi) {
    std::vector<double> distance;
    for (int64_t i = 0; i < shape.dim[2]; ++i)
      for (int64_t j = 0; j < shape.dim[3]; ++j)
        distance.push_back(static_cast<double>(i + shape.dim[3] - shape.dim[2] - j));
    scores = sub(scores, mul(reshape(o.alibi, {heads, 1, 1}),
                             tensor({shape.dim[2], shape.dim[3]}, distance, q.dtype(), q.device())));
  }
  if (o.bias) scores = add(scores, o.bias);
  scores = masked_fill(scores, may_attend(o.mask, shape, q.device()), -INFINITY);
  const Tensor weights = softmax(scores);
  const Tensor y = matmul(dropped(weights, o), vh);
  if (!o.n_heads) return {y, weights};
  return {reshape(permute(y, {0, 2, 1, 3}), {q.size(0), q.size(1), heads * y.size(-1)}), weights};
}

}  // namespace bonsai
