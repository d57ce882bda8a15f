// Attention: training, prefill and windows beside the FMA peak, decoding beside the bandwidth at
// which keys and values can be read.
#include "bench/bench.h"
#include "kernels/kv_view.h"

namespace headroom::bench {

namespace {

struct Case {
  const char* name;
  int64_t batch, queries, keys, heads, kv_heads, size;
  int64_t window = 0;
};

/// Every sequence `keys` long, its last `queries` positions asking.
kernels::AttentionInputs inputs(const Case& c, DType type) {
  kernels::AttentionInputs in;
  in.q = normal({c.batch, c.queries, c.heads, c.size}, type);
  in.kv = kernels::dense_view(normal({c.batch, c.keys, c.kv_heads, c.size}, type),
                              normal({c.batch, c.keys, c.kv_heads, c.size}, type), c.queries);
  in.mask.window = c.window;
  in.scale = 0.2;
  return in;
}

/// FLOP of one product over the pairs that the mask lets through.
double product_flop(const Case& c) {
  double pairs = 0;
  for (int64_t p = c.keys - c.queries; p < c.keys; ++p) {
    pairs += static_cast<double>(c.window == 0 ? p + 1 : std::min(p + 1, c.window));
  }
  return 2.0 * pairs * static_cast<double>(c.batch * c.heads * c.size);
}

Work forward(const Case& c, DType type) {
  static kernels::Backend& cpu = kernels::backend(kCpu);
  const kernels::AttentionInputs in = inputs(c, type);
  Tensor out = normal(in.q.shape(), type);
  Tensor lse = normal({c.batch, c.queries, c.heads}, DType::f32);
  const auto call = [=]() mutable { cpu.attention(in, out, lse); };
  return c.queries == 1 ? memory_bound(call, {in.kv.k, in.kv.v})
                        : Work{call, 0, 2 * product_flop(c), type};  // scores, outputs
}

Work backward(const Case& c, DType type) {
  static kernels::Backend& cpu = kernels::backend(kCpu);
  const kernels::AttentionInputs in = inputs(c, type);
  Tensor out = normal(in.q.shape(), type);
  Tensor lse = normal({c.batch, c.queries, c.heads}, DType::f32);
  cpu.attention(in, out, lse);
  const Tensor dout = normal(in.q.shape(), type), dq = normal(in.q.shape(), type);
  const Tensor dk = normal(in.kv.k.shape(), type), dv = normal(in.kv.v.shape(), type);
  const auto call = [=] { cpu.attention_backward(in, out, lse, dout, {dq}, {dk}, {dv}, {}); };
  return {call, 0, 5 * product_flop(c), type};  // scores and weights' gradients; dq, dk, dv
}

void add_case(const Case& c, const char* pass, Work (*make)(const Case&, DType)) {
  for (const DType type : {DType::f32, DType::bf16}) {
    add(fmt::format("{}{}/kv={}/{}", c.name, pass, c.kv_heads, name_of(type)),
        [=] { return make(c, type); });
  }
}

}  // namespace

void add_cases() {
  for (const int64_t kv_heads : {8, 2, 1}) {
    const Case training{"gqa", 16, 256, 256, 8, kv_heads, 32};
    add_case(training, "", forward);
    add_case(training, "_backward", backward);
  }
  for (const int64_t kv_heads : {12, 4}) {
    const Case training{"124m", 4, 256, 256, 12, kv_heads, 64};
    add_case(training, "", forward);
    add_case(training, "_backward", backward);
    add_case({"prefill", 1, 2048, 2048, 12, kv_heads, 64}, "", forward);
    add_case({"decode", 1, 1, 65536, 12, kv_heads, 64}, "", forward);
    add_case({"decode_batch", 16, 1, 4096, 12, kv_heads, 64}, "", forward);
  }
  const Case windowed{"window=256", 1, 2048, 2048, 12, 4, 64, 256};
  add_case(windowed, "", forward);
  add_case(windowed, "_backward", backward);
}

}  // namespace headroom::bench
