// Points under the roofline, and the roof.
#include "experiments/roofline.h"

#include <memory>

#include "configs/size.h"
#include "experiments/ceilings.h"
#include "experiments/timed_model.h"
#include "kernels/threads.h"

namespace headroom::experiments {

namespace {

constexpr int kCeilings = 5;
constexpr int kPrefills = 3;
constexpr int64_t kBatchSteps = 6;
constexpr int64_t kWarmUpDecodes = 2;

class Bench {
 public:
  Bench(const configs::ModelConfig& config, int64_t vocab_size, const RooflineOptions& options,
        const BenchProgress& progress)
      : config_(config),
        vocab_size_(vocab_size),
        options_(options),
        progress_(progress),
        all_(kPrefills + std::ssize(weight_types()) +
             std::ssize(options.batches) * std::ssize(options.n_kv_head)) {}

  Roofline run() {
    {
      const std::unique_ptr<nn::GPT> model = make(config_);
      prefill(*model);
      for (const auto& [name, type] : weight_types()) {
        begin_part();
        model->store_weights(type);
        decode(*model, name, type);
      }
    }
    for (const int64_t kv_heads : options_.n_kv_head) {
      batches(kv_heads);
    }
    progress_(all_, all_);
    return result_;
  }

 private:
  struct WeightType {
    const char* name;
    DType type;
  };
  static std::vector<WeightType> weight_types() {
    return {{"f32", DType::f32}, {"bf16", DType::bf16}, {"int8", DType::i8}};
  }

  std::unique_ptr<nn::GPT> make(const configs::ModelConfig& model) const {
    return std::make_unique<nn::GPT>(model, vocab_size_,
                                     nn::Scope{.seed = 1, .device = options_.device});
  }

  void begin_part() { progress_(done_++, all_); }

  void prefill(const nn::GPT& model) {
    const DType dtype = options_.prefill_dtype;
    std::vector<double> ms, fp32, bf16;
    prefill_ms(model, options_.prefill_tokens, dtype);
    for (int i = 0; i < kCeilings; ++i) {
      if (i < kPrefills) {
        begin_part();
        ms.push_back(prefill_ms(model, options_.prefill_tokens, dtype));
      }
      fp32.push_back(peak_gflops(DType::f32, options_.device));
      bf16.push_back(peak_gflops(DType::bf16, options_.device));
    }
    result_.peak_fp32_gflops = median(fp32);
    result_.peak_bf16_gflops = median(bf16);
    result_.amx_peak_gflops = amx_peak_gflops(DType::bf16, options_.device);
    const double peak = dtype == DType::bf16 ? result_.peak_bf16_gflops : result_.peak_fp32_gflops;
    const int64_t tokens = options_.prefill_tokens;
    const auto flop = static_cast<double>(configs::prefill_flop(config_, vocab_size_, tokens));
    const auto bytes = static_cast<double>(bytes_of_a_pass(model, tokens, dtype));
    const double seconds = median(ms) / 1e3;
    result_.prefill = {.tokens = tokens,
                       .tokens_per_s = static_cast<double>(tokens) / seconds,
                       .gflops = flop / seconds / 1e9,
                       .fraction_of_peak = flop / seconds / 1e9 / peak,
                       .flop_per_byte = flop / bytes};
  }

  /// Steps at one context, the read bandwidth measured in between.
  void decode(const nn::GPT& model, const char* name, DType type) {
    const DType activations = type == DType::f32 ? DType::f32 : narrow();
    TimedDecode decode(model, 1, options_.context + 1, activations);
    decode.fill(options_.context);
    std::vector<double> ms, bandwidth;
    for (int64_t i = -kWarmUpDecodes; i < options_.steps; ++i) {
      const double took = decode.step_ms();
      if (i >= 0) {
        ms.push_back(took);
      }
      if (i >= 0 && (i + 1) * kCeilings / options_.steps > std::ssize(bandwidth)) {
        bandwidth.push_back(bandwidth_gb_s(options_.device));
        decode.step_ms();  // the sample has emptied the caches
      }
    }
    all_bandwidths_.insert(all_bandwidths_.end(), bandwidth.begin(), bandwidth.end());
    result_.read_bandwidth_gb_s = median(all_bandwidths_);
    const int64_t context = options_.context + 1;
    const int64_t bytes = bytes_of_a_pass(model, context, activations);
    const double seconds = median(ms) / 1e3;
    result_.decode.push_back(
        {.weights = name,
         .activations = activations,
         .tokens_per_s = 1 / seconds,
         .bytes_per_token = bytes,
         .fraction_of_bandwidth = static_cast<double>(bytes) / seconds / 1e9 / median(bandwidth),
         .flop_per_byte = static_cast<double>(configs::decode_flop(config_, vocab_size_, context)) /
                          static_cast<double>(bytes)});
  }

  /// A column of the table: one model, every batch.
  void batches(int64_t kv_heads) {
    configs::ModelConfig config = config_;
    config.given_head_dim = config_.head_dim();
    config.n_kv_head = kv_heads;
    const std::unique_ptr<nn::GPT> model = make(config);
    for (const int64_t batch : options_.batches) {
      begin_part();
      TimedDecode decode(*model, batch, options_.batch_context + 1, DType::f32);
      decode.fill(options_.batch_context);
      std::vector<double> ms;
      for (int64_t i = -1; i < kBatchSteps; ++i) {
        const double took = decode.step_ms();
        if (i >= 0) {
          ms.push_back(took);
        }
      }
      result_.batches.push_back({.batch = batch,
                                 .n_kv_head = kv_heads,
                                 .tokens_per_s = static_cast<double>(batch) / median(ms) * 1e3});
    }
  }

  /// The type of activations and cache beside narrow weights.
  DType narrow() const {
    return options_.device != kCpu || kernels::has_native_bf16() ? DType::bf16 : DType::f32;
  }

  const configs::ModelConfig& config_;
  int64_t vocab_size_;
  const RooflineOptions& options_;
  const BenchProgress& progress_;
  int64_t done_ = 0, all_;
  std::vector<double> all_bandwidths_;
  Roofline result_;
};

}  // namespace

Roofline bench_roofline(const configs::ModelConfig& config, int64_t vocab_size,
                        const RooflineOptions& options, const BenchProgress& progress) {
  return Bench(config, vocab_size, options, progress).run();
}

}  // namespace headroom::experiments
