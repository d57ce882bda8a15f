// A model on a GPU, the harness's or a real one: trained, saved, resumed, evaluated, read from and
// analysed there, beside the same on the CPU. Whatever reads the device's memory from the host is
// refused by it.
#include <gtest/gtest.h>

#include "cli_random_run.h"
#include "experiments/convert.h"
#include "experiments/low_rank.h"
#include "experiments/sink_mass.h"
#include "infer/engine.h"
#include "infer/prompt_cache.h"
#include "infer/stream_loss.h"
#include "infer/verify.h"
#include "tensor/allocator.h"
#include "test_device.h"
#include "train/evaluate.h"
#include "train_run.h"

namespace headroom::testing {
namespace {

/// Float32 sums in another order.
constexpr double kClose = 1e-4;

class OnTheDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    if (test_device() == kCpu) GTEST_SKIP() << "compares a device with the processor";
  }
  const std::shared_ptr<void> host_keeps_out_ = keep_host_out();
};

/// A random run on both devices.
struct Twins {
  RandomRun run;
  train::LoadedRun cpu = train::load_run(run.path());
  train::LoadedRun gpu = train::load_run(run.path(), {}, test_device());
  std::vector<int32_t> ids = infer::synthetic_tokens(100, cpu.model->vocab_size(), 1, 0);
};

double loss_under(const nn::GPT& model, std::span<const int32_t> ids, const std::string& cache) {
  return infer::stream_loss(model, ids, {.cache = infer::parse_cache_spec(cache)},
                            [](int64_t, std::span<const double>) {})
      .sum_nats;
}

TEST_F(OnTheDevice, AModelIsTheSameOne) {
  const Twins twins;
  EXPECT_EQ(twins.gpu.model->device(), test_device());
  const auto cpu = twins.cpu.model->parameters(), there = twins.gpu.model->parameters();
  for (size_t i = 0; i < cpu.size(); ++i) {
    EXPECT_EQ(there[i].value.device(), test_device()) << there[i].name;
    EXPECT_EQ(there[i].value.value().to_vector<float>(), cpu[i].value.value().to_vector<float>());
  }
  // Drawn there, too: the numbers are those of the host.
  const nn::GPT drawn(twins.cpu.config.model, 9, nn::Scope{.seed = 5, .device = test_device()});
  const nn::GPT here(twins.cpu.config.model, 9, nn::Scope{.seed = 5});
  EXPECT_EQ(drawn.parameters()[0].value.value().to_vector<float>(),
            here.parameters()[0].value.value().to_vector<float>());
}

/// Blocks that are full and one that is not, chunks, windows, every place and coding.
TEST_F(OnTheDevice, EveryCacheGivesTheLossOfTheCpu) {
  const Twins twins;
  for (const char* cache : {"static", "static,place=host", "static,place=file", "static,dtype=int8",
                            "static,k=int8,v=int4,place=host",
                            "static,window=16,sinks=4,dtype=int8,place=file", "none"}) {
    const double there = loss_under(*twins.gpu.model, twins.ids, cache);
    EXPECT_NEAR(there / loss_under(*twins.cpu.model, twins.ids, cache), 1, kClose) << cache;
  }
}

/// train.tf32 holds for whatever is computed of a run.
TEST_F(OnTheDevice, ARunIsReadInTheArithmeticItAsksFor) {
  const Twins twins;
  const auto loss = [&](const std::string& tf32) {
    const auto run = train::load_run(twins.run.path(), {{"train.tf32=" + tf32}}, test_device());
    return loss_under(*run.model, twins.ids, "static");
  };
  const double exact = loss("false"), rounded = loss("true");
  EXPECT_TRUE(rounded != exact || !test_device_is_a_double());
  EXPECT_NEAR(rounded / exact, 1, 0.01);
  EXPECT_EQ(loss("false"), exact);
}

TEST_F(OnTheDevice, AHostsCacheTakesTheDeviceNoMemoryBetweenPasses) {
  const Twins twins;
  const auto bytes = [] { return allocator(test_device()).bytes_in_use(); };
  const auto held = [&](const char* cache) {
    const size_t before = bytes();
    const infer::BlockCache kept(twins.gpu.config.model, infer::BlockTable({}, 100), 1,
                                 infer::parse_cache_spec(cache).storage(DType::f32), test_device());
    return bytes() - before;
  };
  EXPECT_GE(held("static"), 100U * 2 * 2 * 2 * 8 * 4);  // layers, k and v, heads, numbers, bytes
  EXPECT_EQ(held("static,place=host"), 0U);
  EXPECT_EQ(held("static,place=file"), 0U);
}

TEST_F(OnTheDevice, TextsAreThoseOfTheCpu) {
  const Twins twins;
  infer::GenerateOptions options;
  options.tokens = 20;
  options.sampling.temperature = 0;
  const infer::Sequences prompts = {{1, 2, 3}, {4}};
  for (const char* cache : {"static", "static,place=host", "none"}) {
    options.cache = infer::parse_cache_spec(cache);
    const auto text = [&](const nn::GPT& model) {
      return infer::generate(model, prompts, options, [](int64_t, int32_t) { return true; }).tokens;
    };
    EXPECT_EQ(text(*twins.gpu.model), text(*twins.cpu.model)) << cache;
  }
}

/// A prompt that was computed on one device is gone on with on the other.
TEST_F(OnTheDevice, APromptsCacheTravels) {
  const Twins twins;
  const TemporaryFolder folder;
  const infer::CacheSpec spec = infer::parse_cache_spec("static,dtype=int8");
  const auto key = [&](const nn::GPT& model) {
    return infer::prompt_cache_key(model, spec, DType::f32, "f32");
  };
  EXPECT_EQ(key(*twins.gpu.model).model, key(*twins.cpu.model).model);
  const auto cache = [&](const nn::GPT& model) {
    return infer::BlockCache(model.config(), infer::BlockTable({}, 100), 1,
                             spec.storage(DType::f32), model.device());
  };
  infer::BlockCache computed = cache(*twins.gpu.model);
  infer::feed(*twins.gpu.model, computed, {twins.ids}, 64, DType::f32,
              [](int64_t, int64_t, const Tensor&) {});
  infer::save_prompt_cache(folder / "prompt", key(*twins.gpu.model), computed, 0, twins.ids);
  const infer::PromptCacheFile file(folder / "prompt", key(*twins.cpu.model));
  for (const train::LoadedRun* run : {&twins.cpu, &twins.gpu}) {
    infer::BlockCache loaded = cache(*run->model);
    ASSERT_EQ(file.load(loaded, 0, twins.ids), 99);
    const infer::StoredLayer layer = loaded.stored(1, 0);
    EXPECT_EQ(layer.parts[0].second.to(kCpu).rows(0, 99).to_vector<int8_t>(),
              computed.stored(1, 0).parts[0].second.to(kCpu).rows(0, 99).to_vector<int8_t>());
  }
}

TEST_F(OnTheDevice, ChecksOfCachesPass) {
  const Twins twins;
  const std::unique_ptr<nn::GPT> wide = infer::to_f64(*twins.gpu.model);
  EXPECT_EQ(wide->device(), test_device());
  const infer::CacheUnderTest cache =
      infer::cache_under_test(infer::parse_cache_spec("static,place=host"));
  for (const infer::CacheCheck& check : infer::verify_published_setting(
           *twins.gpu.model, *wide, cache,
           infer::synthetic_tokens(infer::kPublishedPrefill + infer::kPublishedDecode, 8, 1, 3))) {
    EXPECT_TRUE(check.ok) << name_of(check.dtype) << ": " << check.max_abs_diff;
  }
}

TEST_F(OnTheDevice, WhatIsMeasuredOfAttentionIsThatOfTheCpu) {
  const Twins twins;
  const experiments::Passages passages = experiments::cut_passages(twins.ids, 2, 24);
  const auto quiet = [](int64_t, int64_t) {};
  const experiments::SinkMass cpu = experiments::sink_mass(*twins.cpu.model, passages, quiet),
                              there = experiments::sink_mass(*twins.gpu.model, passages, quiet);
  for (size_t layer = 0; layer < cpu.first.size(); ++layer) {
    for (size_t head = 0; head < cpu.first[layer].size(); ++head) {
      EXPECT_NEAR(there.first[layer][head], cpu.first[layer][head], kClose);
    }
  }
  const auto rank = [&](const nn::GPT& model) {
    return experiments::low_rank(model, passages, passages, {5}, quiet).ranks[0].loss;
  };
  EXPECT_NEAR(rank(*twins.gpu.model) / rank(*twins.cpu.model), 1, kClose);
}

/// Two steps.
configs::Config short_config(const Workplace& work) {
  configs::Config config = work.config();
  config.model.n_layer = 1;
  config.train.steps = 2;
  config.train.batch_size = 2;
  config.train.eval_every = config.train.save_every = 1;
  config.train.warmup_steps = 0;
  return config;
}

/// What train.deterministic promises. The harness runs the blocks of a kernel in another order each
/// time.
TEST_F(OnTheDevice, EqualRunsGiveEqualBytes) {
  const Workplace work(600);
  configs::Config config = short_config(work);
  config.model.dropout = 0.1;
  config.model.bias = configs::Bias::all;
  config.train.grad_accumulation = 2;
  for (const auto precision : {configs::Precision::fp32, configs::Precision::bf16}) {
    config.train.precision = precision;
    const auto checkpoint = [&](const std::string& run) {
      const std::filesystem::path folder =
          work.folder / fmt::format("{}-{}", run, configs::name_of(precision));
      Recorder recorder;
      train::train(config, {.folder = folder, .device = test_device()}, recorder);
      return read_file(folder / train::kLastFile);
    };
    EXPECT_TRUE(checkpoint("one") == checkpoint("other")) << configs::name_of(precision);
  }
}

/// Begun on one device and ended on another, with either optimizer's state.
TEST_F(OnTheDevice, ARunIsTrainedSavedResumedAndConverted) {
  const Workplace work(600);
  const configs::Config config = short_config(work);
  const auto train = [&](const std::string& run, Device device, int64_t stop_at) {
    Recorder recorder;
    recorder.stop_at = stop_at;
    train::TrainOptions options{.folder = work.folder / run, .resume = true, .device = device};
    train::train(config, options, recorder);
    EXPECT_EQ(recorder.start.device, device);
    return recorder.steps.back().loss;
  };
  const double expected = train("cpu", kCpu, -1);
  EXPECT_NEAR(train("gpu", test_device(), -1), expected, kClose * expected);
  train("moves", test_device(), 1);
  EXPECT_NEAR(train("moves", kCpu, -1), expected, kClose * expected);
  train("moves back", kCpu, 1);
  EXPECT_NEAR(train("moves back", test_device(), -1), expected, kClose * expected);

  const std::filesystem::path run = work.folder / "gpu";
  const auto pooled = [&](Device device) { return experiments::pool_run(run, 1, 3, {}, device); };
  const experiments::PooledRun there = pooled(test_device()), here = pooled(kCpu);
  EXPECT_EQ(there.model->device(), test_device());
  EXPECT_NEAR(there.original_loss, here.original_loss, kClose * here.original_loss);
  EXPECT_NEAR(there.pooled_loss, here.pooled_loss, kClose * here.pooled_loss);
  experiments::write_pooled_run(there, work.folder / "pooled");
  EXPECT_EQ(train::load_run(work.folder / "pooled", {}, kCpu).config.model.n_kv_head, 1);
}

}  // namespace
}  // namespace headroom::testing
