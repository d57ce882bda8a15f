// Attention as its definition reads, in f64: what the kernels are compared with. It shares no code
// with them: each key is looked up by its position, and the whole row of weights is written down.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/backend.h"

namespace headroom::testing {

struct AttentionResult {
  std::vector<double> out, lse;           // (B, T, H, Dv), (B, T, H)
  std::vector<double> dq, dk, dv, dsink;  // shaped like what they are gradients of
};

/// A key that a sequence holds.
struct HeldKey {
  int64_t position, slot;
};

inline std::vector<HeldKey> held_keys(const kernels::KVView& kv, int64_t b) {
  std::vector<HeldKey> keys;
  for (int64_t n = 0; n < kv.slots.dim(1); ++n) {
    const int64_t at = b * kv.slots.dim(1) + n;
    const int64_t start = kv.starts.data<int32_t>()[at];
    if (start < 0) break;
    for (int64_t i = 0; i < 64 && start + i < kv.lengths.data<int32_t>()[b]; ++i) {
      keys.push_back({start + i, kv.slots.data<int32_t>()[at] + i});
    }
  }
  return keys;
}

inline bool may_see(const kernels::AttentionMask& mask, int64_t query, int64_t key) {
  return key <= query && (mask.window == 0 || key > query - mask.window || key < mask.sinks);
}

/// For f64 inputs; the gradients are those of sum(dout * out). With q_sink they are left at 0.
inline AttentionResult reference_attention(const kernels::AttentionInputs& in,
                                           const std::vector<double>& dout) {
  const int64_t queries = in.q.dim(1), heads = in.q.dim(2), dk = in.q.dim(3);
  const int64_t kv_heads = in.kv.k.dim(1), dv = in.kv.v.dim(2);
  const double *q = in.q.data<double>(), *k = in.kv.k.data<double>(), *v = in.kv.v.data<double>();
  const double* q_sink = in.q_sink.defined() ? in.q_sink.data<double>() : nullptr;
  const double* logits = in.sink_logits.defined() ? in.sink_logits.data<double>() : nullptr;
  AttentionResult r;
  r.out.assign(static_cast<size_t>(in.q.dim(0) * queries * heads * dv), 0);
  r.lse.assign(static_cast<size_t>(in.q.dim(0) * queries * heads), 0);
  r.dq.assign(static_cast<size_t>(in.q.numel()), 0);
  r.dk.assign(static_cast<size_t>(in.kv.k.numel()), 0);
  r.dv.assign(static_cast<size_t>(in.kv.v.numel()), 0);
  r.dsink.assign(static_cast<size_t>(heads), 0);

  const auto row = [&](int64_t b, int64_t t, int64_t h, int64_t position,
                       const std::vector<HeldKey>& held) {
    const int64_t at = (b * queries + t) * heads + h, kv_head = h / (heads / kv_heads);
    std::vector<HeldKey> keys;
    std::vector<double> weights;
    double total = logits == nullptr ? 0 : std::exp(logits[h]);
    for (const HeldKey& key : held) {
      if (!may_see(in.mask, position, key.position)) continue;
      const double* query =
          (q_sink != nullptr && key.position < in.mask.sinks ? q_sink : q) + at * dk;
      double score = 0;
      for (int64_t i = 0; i < dk; ++i) {
        score += query[i] * k[(key.slot * kv_heads + kv_head) * dk + i];
      }
      keys.push_back(key);
      weights.push_back(std::exp(in.scale * score));
      total += weights.back();
    }
    double delta = 0;
    for (size_t j = 0; j < keys.size(); ++j) {
      weights[j] /= total;
      for (int64_t i = 0; i < dv; ++i) {
        const int64_t value = (keys[j].slot * kv_heads + kv_head) * dv + i, o = at * dv + i;
        r.out[static_cast<size_t>(o)] += weights[j] * v[value];
        r.dv[static_cast<size_t>(value)] += weights[j] * dout[static_cast<size_t>(o)];
        delta += weights[j] * v[value] * dout[static_cast<size_t>(o)];
      }
    }
    r.lse[static_cast<size_t>(at)] = std::log(total);
    if (logits != nullptr) r.dsink[static_cast<size_t>(h)] -= std::exp(logits[h]) / total * delta;
    for (size_t j = 0; j < keys.size() && q_sink == nullptr; ++j) {
      double dweight = 0;
      for (int64_t i = 0; i < dv; ++i) {
        dweight += v[(keys[j].slot * kv_heads + kv_head) * dv + i] *
                   dout[static_cast<size_t>(at * dv + i)];
      }
      const double dscore = in.scale * weights[j] * (dweight - delta);
      for (int64_t i = 0; i < dk; ++i) {
        const int64_t key = (keys[j].slot * kv_heads + kv_head) * dk + i;
        r.dq[static_cast<size_t>(at * dk + i)] += dscore * k[key];
        r.dk[static_cast<size_t>(key)] += dscore * q[at * dk + i];
      }
    }
  };

  for (int64_t b = 0; b < in.q.dim(0); ++b) {
    const int64_t count = in.kv.counts.data<int32_t>()[b],
                  length = in.kv.lengths.data<int32_t>()[b];
    const std::vector<HeldKey> held = held_keys(in.kv, b);
    for (int64_t t = 0; t < count; ++t) {
      for (int64_t h = 0; h < heads; ++h) row(b, t, h, length - count + t, held);
    }
  }
  return r;
}

}  // namespace headroom::testing
