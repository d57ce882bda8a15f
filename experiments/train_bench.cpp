// Steps on random tokens, timed with the peak measured in between.
#include "experiments/train_bench.h"

#include <optional>

#include "configs/memory.h"
#include "configs/size.h"
#include "experiments/ceilings.h"
#include "experiments/milliseconds.h"
#include "infer/verify.h"
#include "kernels/peak.h"
#include "kernels/threads.h"
#include "nn/gpt.h"
#include "train/step.h"

namespace headroom::experiments {

namespace {

constexpr int64_t kWarmUp = 2;  // makes the products' code and the buffers
constexpr int64_t kPeaks = 5;   // samples of the peak
constexpr int kRepetitions = 3;
constexpr int64_t kScalingSteps = 3;
/// On the peak rates, as early in a warm-up. Dozens of full steps on one batch, by AdamW at what
/// may be Muon's rate, lead the model where softmaxes saturate and gradients become denormal
/// numbers, which Intel's processors multiply at a sixtieth of the speed.
constexpr double kFactor = 1e-3;

Tensor random_tokens(const configs::Config& config, int64_t vocab_size, uint64_t number) {
  const Shape shape{config.train.batch_size, config.model.block_size};
  return Tensor::from(infer::synthetic_tokens(shape.numel(), vocab_size,
                                              static_cast<uint64_t>(config.train.seed), number),
                      shape);
}

/// A model and its optimizer, and steps on the same batch.
class Training {
 public:
  Training(const configs::Config& config, const TrainBenchOptions& options)
      : config_(config),
        dtype_(options.dtype),
        model_(
            config.model, options.vocab_size,
            nn::Scope{.seed = static_cast<uint64_t>(config.train.seed), .device = options.device}),
        optimizer_(config.train, model_.parameters(), dtype_),
        batch_{random_tokens(config, options.vocab_size, 0),
               random_tokens(config, options.vocab_size, 1)} {}

  double step_ms() {
    return timed([this] {
      train::train_step(model_, optimizer_, std::span(&batch_, 1),
                        {.step = ++step_,
                         .factor = kFactor,
                         .clip_norm = config_.train.clip_norm,
                         .dtype = dtype_,
                         .seed = static_cast<uint64_t>(config_.train.seed)});
    });
  }

  /// The parts of a step; `muon` is the config's optimizer where that is Muon.
  StepParts parts(train::Optimizer* muon) {
    std::vector<double> forward, backward, clip, adamw, muon_update;
    for (int i = 0; i < kRepetitions; ++i) {
      optimizer_.clear_gradients();
      nn::Variable loss;
      forward.push_back(
          timed([&] { loss = model_.loss(batch_.tokens, batch_.targets, {.dtype = dtype_}); }));
      backward.push_back(timed([&] { loss.backward(); }));
      Tensor squares;
      clip.push_back(timed([&] { squares = optimizer_.gradient_squares(); }));
      adamw.push_back(timed([&] { optimizer_.update(++step_, kFactor, {squares}); }));
      if (muon != nullptr) {
        muon_update.push_back(timed([&] { muon->update(step_, kFactor, {squares}); }));
      }
    }
    optimizer_.clear_gradients();
    return {.forward = median(forward),
            .backward = median(backward),
            .clip = median(clip),
            .optimizer = median(adamw),
            .muon_extra = muon == nullptr ? 0 : median(muon_update) - median(adamw)};
  }

  std::vector<nn::Parameter> parameters() const { return model_.parameters(); }

 private:
  /// Until the device is done with what f() asks of it.
  template <class F>
  double timed(const F& f) const {
    return milliseconds([&] {
      f();
      kernels::backend(model_.device()).wait();
    });
  }

  const configs::Config& config_;
  DType dtype_;
  nn::GPT model_;
  train::Optimizer optimizer_;
  train::Batch batch_;
  int64_t step_ = 0;
};

std::vector<int> fewer_threads(int all) {
  std::vector<int> counts;
  for (int n = 1; n < all; n *= 2) {
    counts.push_back(n);
  }
  return counts;
}

/// Sets the threads for its lifetime.
class Threads {
 public:
  explicit Threads(int count) : before_(kernels::threads()) { kernels::set_threads(count); }
  ~Threads() { kernels::set_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

ThreadScaling scale(int threads, const TrainBench& all, Training& training, DType dtype,
                    const std::function<void()>& begin_step) {
  const Threads set(threads);
  std::vector<double> ms, peaks;
  for (int64_t i = 0; i <= kScalingSteps; ++i) {
    begin_step();
    const double took = training.step_ms();
    if (i > 0) {  // the first one warms up
      ms.push_back(took);
      peaks.push_back(kernels::fma_peak_gflops(dtype));
    }
  }
  const double seconds = median(ms) / 1e3, peak = median(peaks);
  return {.threads = threads,
          .tokens_per_s = static_cast<double>(all.tokens) / seconds,
          .peak_gflops = peak,
          .fraction_of_peak = all.gflop_per_step / seconds / peak};
}

/// The steps themselves, the peak between them, and the memory they took.
void time_steps(Training& training, const TrainBenchOptions& options,
                const std::function<void()>& begin_step, TrainBench& result) {
  std::vector<double> ms, peaks;
  for (int64_t i = -kWarmUp; i < options.steps; ++i) {
    begin_step();
    const double took = training.step_ms();
    if (i >= 0) {
      ms.push_back(took);
    }
    if (i == 0) {  // before a GPU's ceiling takes memory
      result.peak_bytes = peak_bytes(options.device);
    }
    if (i >= 0 && (i + 1) * kPeaks / options.steps > std::ssize(peaks)) {
      peaks.push_back(peak_gflops(options.dtype, options.device));
    }
  }
  result.step_ms = median(ms);
  result.tokens_per_s = static_cast<double>(result.tokens) / result.step_ms * 1e3;
  result.gflops = result.gflop_per_step / result.step_ms * 1e3;
  result.peak_gflops = median(peaks);
  result.fraction_of_peak = result.gflops / result.peak_gflops;
}

}  // namespace

TrainBench bench_train(const configs::Config& given, const TrainBenchOptions& options,
                       const BenchProgress& progress) {
  configs::Config config = given;
  config.train.optimizer = configs::OptimizerKind::adamw;
  config.train.grad_accumulation = 1;
  Training training(config, options);
  const bool scaling = options.scaling && options.device == kCpu;
  const std::vector<int> counts = scaling ? fewer_threads(kernels::threads()) : std::vector<int>();
  const int64_t all_steps = kWarmUp + options.steps + std::ssize(counts) * (kScalingSteps + 1);
  int64_t done = 0;
  const auto begin_step = [&] { progress(done++, all_steps); };

  TrainBench result;
  result.threads = kernels::threads();
  result.tokens = configs::tokens_per_step(config);
  result.gflop_per_step =
      static_cast<double>(configs::step_flop(config.model, options.vocab_size, result.tokens)) /
      1e9;
  result.planned_bytes = configs::total_bytes(configs::training_memory(
      config, options.vocab_size, static_cast<int64_t>(size_of(options.dtype))));
  time_steps(training, options, begin_step, result);
  result.gemm_gflops = best_gemm_gflops(options.dtype, options.device);
  result.amx_peak_gflops = amx_peak_gflops(options.dtype, options.device);
  std::optional<train::Optimizer> muon;
  if (given.train.optimizer == configs::OptimizerKind::muon) {
    muon.emplace(given.train, training.parameters(), options.dtype);
  }
  result.parts = training.parts(muon ? &*muon : nullptr);
  for (const int threads : counts) {
    result.scaling.push_back(scale(threads, result, training, options.dtype, begin_step));
  }
  if (scaling) {
    result.scaling.push_back({.threads = result.threads,
                              .tokens_per_s = result.tokens_per_s,
                              .peak_gflops = result.peak_gflops,
                              .fraction_of_peak = result.fraction_of_peak});
  }
  progress(all_steps, all_steps);
  return result;
}

}  // namespace headroom::experiments
