// Random problems for the attention kernels, and running the kernels on them.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "tests/kernel_operands.h"
#include "tests/test_device.h"

namespace headroom::testing {

using kernels::AttentionInputs;

/// What a random problem looks like. The last `queries` positions of each sequence ask.
struct Problem {
  const char* name;
  std::vector<int32_t> lengths, counts;
  int64_t heads = 2, kv_heads = 2, key_size = 16, value_size = 16;
  int64_t window = 0, sinks = 0;
  bool paged = false;    // blocks in shuffled places
  bool evicted = false;  // blocks that hold nothing visible are gone from the table
  bool q_sink = false, sink_logits = false;
  int64_t spare = 0;  // columns of the table that no sequence uses
};

inline std::ostream& operator<<(std::ostream& out, const Problem& p) { return out << p.name; }

/// The same problem with activations of another type.
inline AttentionInputs as(DType type, const AttentionInputs& in) {
  AttentionInputs to = in;
  to.q = as(type, in.q);
  to.q_sink = as(type, in.q_sink);
  to.kv.k = as(type, in.kv.k);
  to.kv.v = as(type, in.kv.v);
  to.sink_logits = as(compute_type(type), in.sink_logits);
  return to;
}

/// The same problem on the tested device.
inline AttentionInputs there(const AttentionInputs& in) {
  AttentionInputs to = in;
  for (Tensor* x :
       {&to.q, &to.q_sink, &to.kv.k, &to.kv.v, &to.kv.slots, &to.kv.starts, &to.kv.lengths,
        &to.kv.counts, &to.kv.k_code.scales, &to.kv.v_code.scales, &to.sink_logits}) {
    *x = there(*x);
  }
  return to;
}

/// The block table of a problem, and how many slots it needs.
inline int64_t make_table(const Problem& p, std::mt19937& random, kernels::KVView& kv) {
  const auto batch = static_cast<int64_t>(p.lengths.size());
  const int32_t longest = *std::max_element(p.lengths.begin(), p.lengths.end());
  const int64_t blocks = std::max<int64_t>(1, (longest + 63) / 64) + p.spare;
  std::vector<int32_t> places(static_cast<size_t>(batch * blocks));
  std::iota(places.begin(), places.end(), 0);
  if (p.paged) std::shuffle(places.begin(), places.end(), random);
  std::vector<int32_t> slots(places.size(), 0), starts(places.size(), -1);
  for (int64_t b = 0; b < batch; ++b) {
    const auto at = static_cast<size_t>(b);
    int64_t used = 0;
    for (int32_t start = 0; start < p.lengths[at]; start += 64) {
      const int64_t oldest = p.lengths[at] - p.counts[at] - p.window + 1;
      if (p.evicted && start >= p.sinks && start + 63 < oldest) continue;
      const auto entry = static_cast<size_t>(b * blocks + used++);
      starts[entry] = start;
      slots[entry] = p.paged ? 64 * places[entry] : static_cast<int32_t>(b) * longest + start;
    }
  }
  kv.slots = Tensor::from(slots, {batch, blocks});
  kv.starts = Tensor::from(starts, {batch, blocks});
  kv.lengths = Tensor::from(p.lengths, {batch});
  kv.counts = Tensor::from(p.counts, {batch});
  return p.paged ? 64 * batch * blocks : batch * longest;
}

/// A random problem in f64 whose numbers are exact in `rounded`.
inline AttentionInputs make_inputs(const Problem& p, DType rounded, std::mt19937& random) {
  const auto batch = static_cast<int64_t>(p.lengths.size());
  const int64_t queries = std::max(1, *std::max_element(p.counts.begin(), p.counts.end()));
  const auto draw = [&](const Shape& shape) {
    return as(DType::f64, as(rounded, normals(shape.numel(), random), shape));
  };
  AttentionInputs in;
  const int64_t slots = make_table(p, random, in.kv);
  in.q = draw({batch, queries, p.heads, p.key_size});
  if (p.q_sink) in.q_sink = draw({batch, queries, p.heads, p.key_size});
  in.kv.k = draw({slots, p.kv_heads, p.key_size});
  in.kv.v = draw({slots, p.kv_heads, p.value_size});
  if (p.sink_logits) in.sink_logits = draw({p.heads});
  in.mask = {p.window, p.sinks};
  in.scale = 1.0 / std::sqrt(static_cast<double>(p.key_size));
  return in;
}

inline Shape output_shape(const AttentionInputs& in) {
  return in.q.shape().with_last(in.kv.width_of_values());
}

struct Forward {
  Tensor out, lse;
};

/// Runs the kernel into memory full of NaN: what it leaves unwritten shows.
inline Forward forward(const AttentionInputs& in) {
  const DType type = in.q.dtype();
  const Shape shape = output_shape(in);
  const Shape rows{shape.dim(0), shape.dim(1), shape.dim(2)};
  const auto nan = [](const Shape& s) {
    return std::vector<double>(static_cast<size_t>(s.numel()), std::nan(""));
  };
  Tensor out = there(as(type, nan(shape), shape));
  Tensor lse = there(as(compute_type(type), nan(rows), rows));
  test_backend().attention(there(in), out, lse);
  return {here(out), here(lse)};
}

struct Gradients {
  Tensor dq, dk, dv, dsink;
};

/// The gradients written over `fill`, or added to it.
inline Gradients backward(const AttentionInputs& in, const Tensor& dout, double fill, bool add) {
  const Forward f = forward(in);
  const auto like = [&](const Tensor& x) {
    const std::vector<double> values(static_cast<size_t>(x.numel()), fill);
    return x.defined() ? there(as(x.dtype(), values, x.shape())) : x;
  };
  const Gradients g{like(in.q), like(in.kv.k), like(in.kv.v), like(in.sink_logits)};
  test_backend().attention_backward(there(in), there(f.out), there(f.lse), there(dout), {g.dq, add},
                                    {g.dk, add}, {g.dv, add}, {g.dsink, add});
  return {here(g.dq), here(g.dk), here(g.dv), here(g.dsink)};
}

}  // namespace headroom::testing
