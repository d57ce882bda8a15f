// Operands, timing by Google Benchmark, and the table.
#include "bench/bench.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "kernels/peak.h"
#include "kernels/threads.h"
#include "tensor/rng.h"

namespace headroom::bench {

namespace {

constexpr const char* kRate = "rate";
constexpr const char* kShare = "share";

/// The median of several measurements.
template <size_t kCount>
double median(const std::function<double()>& measure) {
  std::array<double, kCount> values{};
  std::generate(values.begin(), values.end(), measure);
  std::sort(values.begin(), values.end());
  return values[kCount / 2];
}

/// What the work of a case is at most, in 10^9 FLOP or bytes per second: of arithmetic the FMA
/// peak, or that of matrix units where the processor has them. Those move with the clock, so each
/// case measures them anew; for memory that would take longer than the cases.
double ceiling(const Work& work) {
  if (work.flop == 0) {
    static const double bandwidth = median<5>(kernels::read_bandwidth_gb_s);
    return bandwidth;
  }
  return median<3>([&] {
    return std::max(kernels::fma_peak_gflops(work.operands),
                    kernels::amx_peak_gflops(work.operands));
  });
}

void time(benchmark::State& state, const std::function<Work()>& make) {
  const Work work = make();
  work.call();  // first use: pages, compiled primitives
  while (state.KeepRunning()) {
    work.call();
  }
  const double units =
      (work.flop == 0 ? work.bytes : work.flop) / 1e9 * static_cast<double>(state.iterations());
  const auto rate = [](double value) {
    return benchmark::Counter(value, benchmark::Counter::kIsRate);
  };
  state.counters[kRate] = rate(units);
  state.counters[kShare] = rate(units / ceiling(work));
  state.SetLabel(work.flop == 0 ? "GB/s" : "GFLOP/s");
}

/// One line per case, as Markdown.
class Table : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override {
    fmt::print("| {:<44} | {:>10} | {:>14} | {:>10} |\n|{:-<46}|{:->11}:|{:->15}:|{:->11}:|\n",
               "kernel", "time", "rate", "of ceiling", "", "", "", "");
    return true;
  }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      fmt::print("| {:<44} | {:>7.0f} us | {:>6.1f} {:>7} | {:>8.0f} % |\n",
                 run.run_name.function_name, run.GetAdjustedRealTime(),
                 run.counters.at(kRate).value, run.report_label,
                 100 * run.counters.at(kShare).value);
      std::fflush(stdout);
    }
  }
};

}  // namespace

Tensor normal(const Shape& shape, DType type) {
  constexpr int64_t kDrawn = 4096;  // and repeated: drawing would take longer than the benchmarks
  Tensor drawn = Tensor::empty({kDrawn}, DType::f32);
  fill_normal(drawn, RandomStream(1, "bench"), 1.0);
  Tensor typed = Tensor::empty({kDrawn}, type), x = Tensor::empty(shape, type);
  kernels::backend(kCpu).cast(drawn, typed);
  for (size_t at = 0; at < x.nbytes(); at += typed.nbytes()) {
    std::memcpy(static_cast<std::byte*>(x.raw()) + at, typed.raw(),
                std::min(typed.nbytes(), x.nbytes() - at));
  }
  return x;
}

Tensor integers(const Shape& shape, int64_t below) {
  const RandomStream stream(1, "bench");
  Tensor x = Tensor::empty(shape, DType::i32);
  for (int64_t i = 0; i < x.numel(); ++i) {
    x.data<int32_t>()[i] = static_cast<int32_t>(
        stream.integer(static_cast<uint64_t>(i), static_cast<uint64_t>(below)));
  }
  return x;
}

Work memory_bound(std::function<void()> call, std::initializer_list<Tensor> tensors) {
  Work work{std::move(call)};
  for (const Tensor& t : tensors) {
    work.bytes += t.defined() ? static_cast<double>(t.nbytes()) : 0;
  }
  return work;
}

void add(const std::string& name, std::function<Work()> make) {
  benchmark::RegisterBenchmark(name.c_str(),
                               [make = std::move(make)](benchmark::State& s) { time(s, make); })
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond)
      ->MinTime(0.05);
}

void add_sizes(const std::string& name,
               const std::function<Work(const Shape& shape, DType type)>& make) {
  for (const auto& [size, shape] :
       {std::pair("step", Shape{4096, 256}), std::pair("memory", Shape{32768, 1024})}) {
    for (const DType type : {DType::f32, DType::bf16}) {
      add(fmt::format("{}/{}/{}", name, size, name_of(type)),
          [make, shape = shape, type] { return make(shape, type); });
    }
  }
}

}  // namespace headroom::bench

int main(int argc, char** argv) {
  using namespace headroom;
  int threads = 0;
  benchmark::Initialize(&argc, argv);
  constexpr std::string_view kThreads = "--threads=";
  if (argc > 1 && std::string_view(argv[1]).starts_with(kThreads)) {
    threads = std::atoi(argv[1] + kThreads.size());
    std::swap(argv[1], argv[--argc]);
  }
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) {
    return 2;
  }
  fmt::print(stderr, "{} threads, {}, {}\n", kernels::set_threads(threads), kernels::simd_name(),
             kernels::gemm_name());
  bench::add_cases();
  bench::Table table;
  benchmark::RunSpecifiedBenchmarks(&table);
  return 0;
}
