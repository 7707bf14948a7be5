// Scaled dot-product attention as one op. Backward recomputes the weights tile by tile from q, k and
// two numbers a query.
#include <cmath>

#include "framework/autograd/record.h"
#include "framework/ops/broadcast.h"
#include "framework/ops/ops.h"

namespace bonsai {
namespace {

struct Args {
  int64_t n_heads;
  bool causal;
  double scale, dropout;
  RandomKey key;
};

// Sizes and steps of one operand: (B,H,T,D), or (B,T,H*D) where n_heads is given.
struct Operand {
  int64_t batch, heads, rows, width;
  Heads heads_of;

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

Attention problem(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& y,
                  const Tensor& mask, const Tensor& stats, const Args& args) {
  const Operand oq(q, args.n_heads), ok(k, args.n_heads), ov(v, args.n_heads), oy(y, args.n_heads);
  Attention a{};
  a.batch = oq.batch, a.heads = oq.heads, a.queries = oq.rows, a.keys = ok.rows;
  a.d_k = oq.width, a.d_v = ov.width;
  a.q = oq.heads_of, a.k = ok.heads_of, a.v = ov.heads_of, a.y = oy.heads_of;
  a.causal = args.causal, a.scale = args.scale, a.dropout = args.dropout, a.key = args.key;
  a.stats = const_cast<void*>(stats.data());
  if (mask) {
    a.mask = mask.data();
    int64_t step = 1;
    for (int i = 1; i <= mask.rank(); ++i) {
      a.mask_step[4 - i] = mask.size(-i) == 1 ? 0 : step;
      step *= mask.size(-i);
    }
  }
  return a;
}

void check_operands(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& o) {
  constexpr const char* op = "scaled_dot_product_attention";
  check_alike(op, q, k);
  check_alike(op, q, v);
  const int rank = o.n_heads ? 3 : 4;
  check(q.rank() == rank && k.rank() == rank && v.rank() == rank, op, "needs tensors of {} axes, got {}, {} and {}",
        rank, q, k, v);
  check(!o.n_heads || (o.n_heads > 0 && q.size(2) % o.n_heads == 0 && v.size(2) % o.n_heads == 0), op,
        "{} heads do not divide the widths of {} and {}", o.n_heads, q, v);
  const int time = rank - 2;
  check(q.size(0) == k.size(0) && q.size(0) == v.size(0) && q.size(-1) == k.size(-1) && k.size(time) == v.size(time) &&
            (o.n_heads || (q.size(1) == k.size(1) && q.size(1) == v.size(1))),
        op, "sizes do not fit: q {}, k {}, v {}", q, k, v);
  check(o.dropout >= 0 && o.dropout <= 1, op, "the dropout rate is {}; it must be in [0, 1]", o.dropout);
  if (!o.mask) return;
  check_alike(op, q, o.mask);
  const Shape scores{q.size(0), o.n_heads ? o.n_heads : q.size(1), q.size(time), k.size(time)};
  check(broadcasts_to(o.mask.shape(), scores), op, "the mask {} does not broadcast to the scores {}", o.mask, scores);
  check(!recording({o.mask}), op, "the mask {} would need a gradient, which only the composed path gives; detach() it",
        o.mask);
}

}  // namespace

Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options) {
  check_operands(q, k, v, options);
  const int64_t d_k = options.n_heads ? q.size(2) / options.n_heads : q.size(3);
  const Args args{options.n_heads, options.causal,
                  options.scale != 0 ? options.scale : 1 / std::sqrt(static_cast<double>(std::max<int64_t>(1, d_k))),
                  options.dropout, options.key};
  Shape shape = q.shape();
  shape[-1] = v.size(-1);
  Tensor y = empty(shape, q.dtype(), q.device());
  const Operand rows(q, options.n_heads);
  Tensor stats = empty({rows.batch * rows.heads * rows.rows, 2}, q.dtype(), q.device());
  kernels(q).attention(problem(q, k, v, y, options.mask, stats, args));
  return record("scaled_dot_product_attention", {q, k, v}, y, {q, k, v, options.mask, stats}, args,
                [](Tensor dy, Saved& s, Sink&, Args args) -> Grads {
                  Tensor dq = empty_like(s[0]), dk = empty_like(s[1]), dv = empty_like(s[2]);
                  const auto at = [&](const Tensor& x) { return Operand(x, args.n_heads).heads_of; };
                  kernels(dy).attention_backward(problem(s[0], s[1], s[2], dy, s[3], s[4], args),
                                                 {at(dy), at(dq), at(dk), at(dv)});
                  return {dq, dk, dv};
                });
}

}  // namespace bonsai
