// Rotary positions and attention as differentiable operators.
#include "autograd/ops.h"

namespace headroom::autograd {

using kernels::backend;
using kernels::Direction;

Variable rope(const Variable& x, const Tensor& table, RopeStyle style) {
  const int64_t rows = x.value().numel() / (x.dim(-1) * x.dim(-2));
  check(x.dim(-1) % 2 == 0 && table.dim(1) * 2 == x.dim(-1),
        "[rope] an even head size with half as many angles: got {} and {}", x.dim(-1),
        table.dim(1));
  check(table.dim(0) > 0 && rows % table.dim(0) == 0, "[rope] {} rows of angles for {} rows",
        table.dim(0), rows);
  check(table.dtype() == compute_type(x.dtype()), "[rope] a table of {} for {} activations",
        name_of(table.dtype()), name_of(x.dtype()));
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  backend(x.device()).rope(x.value(), table, style, Direction::forward, {y});
  return record("rope", y, {x}, [table, style](Gradients& g) {
    backend(table.device()).rope(g.of(), table, style, Direction::backward, g.into(0));
  });
}

namespace {

void check_attention(const Variable& q, const KVView& kv, const AttentionOptions& options) {
  const int64_t H = q.dim(2), K = kv.k.dim(1);
  check(q.shape().rank() == 4 && K > 0 && H % K == 0,
        "[attention] n_head must be a multiple of n_kv_head: got {} and {}", H, K);
  check(kv.k_code.scales.defined() || kv.k.dim(2) == q.dim(3),
        "[attention] q {} and k {} don't fit together", q.shape(), kv.k.shape());
  check(!kv.v.defined() || kv.v.dim(1) == K, "[attention] k {} and v {} don't fit together",
        kv.k.shape(), kv.v.shape());
  check(kv.lengths.numel() == q.dim(0), "[attention] {} sequences of queries, {} of keys", q.dim(0),
        kv.lengths.numel());
  check(options.mask.window >= 0 && options.mask.sinks >= 0,
        "[attention] window and sinks must not be negative: got {} and {}", options.mask.window,
        options.mask.sinks);
  check(!options.sink_logits.defined() || options.sink_logits.shape() == Shape{H},
        "[attention] one sink logit per head ({}): got {}", H,
        options.sink_logits.defined() ? options.sink_logits.shape() : Shape());
}

}  // namespace

Variable attention(const Variable& q, const Variable& k, const Variable& v, const KVView& kv,
                   const AttentionOptions& options) {
  check_attention(q, kv, options);
  const bool wants_grad = recording() && (q.requires_grad() || k.requires_grad() ||
                                          v.requires_grad() || options.sink_logits.requires_grad());
  check(!wants_grad || (kv.k.same_memory(k.value()) && kv.v.defined() &&
                        kv.v.same_memory(v.value()) && !options.q_sink.defined()),
        "[attention] gradients flow through the dense view of k and v, not through a cache");
  const Tensor sink_logits = options.sink_logits.defined() ? options.sink_logits.value() : Tensor();
  kernels::AttentionInputs in{q.value(),   options.q_sink, kv,
                              sink_logits, options.mask,   options.scale};
  Tensor out = Tensor::empty(q.shape().with_last(kv.width_of_values()), q.dtype(), q.device());
  Tensor lse = Tensor::empty({q.dim(0), q.dim(1), q.dim(2)}, compute_type(q.dtype()), q.device());
  backend(q.device()).attention(in, out, lse);
  if (options.watch) {
    options.watch(in, lse);
  }
  return record("attention", out, {q, k, v, options.sink_logits},
                [in = std::move(in), out, lse](Gradients& g) {
                  backend(out.device())
                      .attention_backward(in, out, lse, g.of(), g.into(0), g.into(1), g.into(2),
                                          g.into(3));
                });
}

}  // namespace headroom::autograd
