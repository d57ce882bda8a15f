// Attention's speed: training shapes against this machine's FMA peak, decoding in bytes of keys and
// values read per second. Pass --benchmark_filter=... to choose.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>
#include <vector>


#include "kernels/cpu/attention.h"
#include "kernels/kv_view.h"
#include "kernels/peak.h"
#include "tensor/rng.h"

namespace headroom::bench {
namespace {

Tensor random(const Shape& shape, DType type, const char* name) {
  Tensor x = Tensor::empty(shape, DType::f32);
  fill_normal(x, RandomStream(1, name), 1.0);
  if (type == DType::f32) {
    return x;
  }
  std::vector<bf16> rounded;
  for (const float value : x.to_vector<float>()) {
    rounded.emplace_back(value);
  }
  return Tensor::from(rounded, shape);
}

struct Case {
  int64_t batch, queries, keys, heads, kv_heads, size;
};

/// Every sequence `keys` long, its last `queries` positions asking.
kernels::AttentionInputs inputs(const Case& c, DType type) {
  kernels::AttentionInputs in;
  in.q = random({c.batch, c.queries, c.heads, c.size}, type, "q");
  in.kv = kernels::dense_view(random({c.batch, c.keys, c.kv_heads, c.size}, type, "k"),
                              random({c.batch, c.keys, c.kv_heads, c.size}, type, "v"), c.queries);
  in.scale = 0.2;
  return in;
}

/// FLOP of one product over the pairs that the mask lets through.
double product_flop(const Case& c) {
  const auto queries = static_cast<double>(c.queries);
  const double pairs = queries * (static_cast<double>(c.keys) - (queries - 1) / 2);
  return 2.0 * pairs * static_cast<double>(c.batch * c.heads * c.size);
}

void report(benchmark::State& state, double flop) {
  static const double peak = kernels::fma_peak_gflops(DType::f32);
  const double per_second = flop * static_cast<double>(state.iterations()) / 1e9;
  state.counters["GFLOP/s"] = benchmark::Counter(per_second, benchmark::Counter::kIsRate);
  state.counters["of_peak"] = benchmark::Counter(per_second / peak, benchmark::Counter::kIsRate);
  state.counters["peak"] = peak;
}

void forward(benchmark::State& state, Case c, DType type) {
  const kernels::AttentionInputs in = inputs(c, type);
  Tensor out = Tensor::empty(in.q.shape(), type);
  Tensor lse = Tensor::empty({c.batch, c.queries, c.heads}, DType::f32);
  for (auto _ : state) {
    kernels::cpu::attention(in, out, lse);
  }
  report(state, 2 * product_flop(c));  // scores, outputs
  if (c.queries == 1) {
    state.SetBytesProcessed(state.iterations() *
                            static_cast<int64_t>(in.kv.k.nbytes() + in.kv.v.nbytes()));
  }
}

void backward(benchmark::State& state, Case c, DType type) {
  const kernels::AttentionInputs in = inputs(c, type);
  Tensor out = Tensor::empty(in.q.shape(), type);
  Tensor lse = Tensor::empty({c.batch, c.queries, c.heads}, DType::f32);
  kernels::cpu::attention(in, out, lse);
  const Tensor dout = random(in.q.shape(), type, "dout");
  const kernels::Into dq{Tensor::empty(in.q.shape(), type)};
  const kernels::Into dk{Tensor::empty(in.kv.k.shape(), type)};
  const kernels::Into dv{Tensor::empty(in.kv.v.shape(), type)};
  for (auto _ : state) {
    kernels::cpu::attention_backward(in, out, lse, dout, dq, dk, dv, {});
  }
  report(state, 5 * product_flop(c));  // scores and weights' gradients again; dq, dk, dv
}

void add(const std::string& name, void (*run)(benchmark::State&, Case, DType), Case c) {
  for (const DType type : {DType::f32, DType::bf16}) {
    benchmark::RegisterBenchmark(
        (name + "/kv" + std::to_string(c.kv_heads) + "/" + std::string(name_of(type))).c_str(), run,
        c, type)
        ->UseRealTime();
  }
}

}  // namespace
}  // namespace headroom::bench

int main(int argc, char** argv) {
  using headroom::bench::Case;
  for (const int64_t kv_heads : {8, 2, 1}) {
    const Case training{16, 256, 256, 8, kv_heads, 32};
    headroom::bench::add("forward", headroom::bench::forward, training);
    headroom::bench::add("backward", headroom::bench::backward, training);
    headroom::bench::add("decode", headroom::bench::forward, {1, 1, 65536, 8, kv_heads, 64});
    headroom::bench::add("decode_batch", headroom::bench::forward, {16, 1, 4096, 8, kv_heads, 64});
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
