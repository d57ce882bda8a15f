// Decoding by replays of one recorded step gives what decoding step by step gives, bit for bit.
#include "infer/decode_step.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "infer/engine.h"
#include "tests/infer_model.h"
#include "tests/test_device.h"

namespace headroom::testing {
namespace {

using infer::BlockCache;
using infer::BlockTable;
using infer::DecodeStep;
using infer::Sequences;

constexpr int64_t kSteps = 40;

configs::ModelConfig tiny_config() {
  configs::ModelConfig model;
  model.n_layer = 2;
  model.n_head = 4;
  model.n_kv_head = 2;
  model.n_embd = 32;
  model.given_n_ff = 48;
  model.block_size = 256;
  model.tie_embeddings = false;
  return model;
}

/// The same weights on every device.
std::unique_ptr<nn::GPT> tiny_model(const configs::ModelConfig& config, Device device) {
  const auto host = small_model(config);
  auto model = std::make_unique<nn::GPT>(
      config, kVocab, nn::Scope{.seed = 7, .dtype = DType::f32, .device = device});
  const auto from = host->parameters(), to = model->parameters();
  for (size_t i = 0; i < from.size(); ++i) {
    Tensor value = to[i].value.value();
    value.copy_from(from[i].value.value());
    nn::Variable(to[i].value).changed();
  }
  return model;
}

/// Whichever way the logits come, for tokens one or none a sequence.
using Forward = std::function<Tensor(const Sequences& tokens)>;

/// Logits of every step of greedy decoding after the prompts, and the tokens. Sequence b ends after
/// ends[b] tokens.
struct Decoded {
  std::vector<std::vector<float>> logits;
  Sequences tokens;
};
Decoded decode(const Sequences& prompts, const std::vector<int64_t>& ends, const Forward& forward) {
  Decoded all{{}, Sequences(prompts.size())};
  Sequences next;
  for (const auto& prompt : prompts) {
    next.push_back({prompt.back()});
  }
  for (int64_t step = 0; step < kSteps; ++step) {
    const Tensor logits = forward(next).to(kCpu);
    all.logits.push_back(logits.to_vector<float>());
    int64_t n = 0;
    for (size_t b = 0; b < prompts.size(); ++b) {
      if (next[b].empty()) continue;
      const float* row = logits.data<float>() + kVocab * n++;
      const auto token = static_cast<int32_t>(std::max_element(row, row + kVocab) - row);
      all.tokens[b].push_back(token);
      next[b] = std::ssize(all.tokens[b]) < ends[b] ? std::vector{token} : std::vector<int32_t>();
    }
  }
  return all;
}

/// A cache that holds all of the prompts but their last tokens.
std::unique_ptr<BlockCache> filled(const nn::GPT& model, const BlockTable& table,
                                   const Sequences& prompts, const infer::Storage& storage) {
  auto cache = std::make_unique<BlockCache>(model.config(), table, std::ssize(prompts), storage,
                                            model.device());
  Sequences heads = prompts;
  for (auto& head : heads) head.pop_back();
  infer::feed(model, *cache, heads, kernels::KVView::kBlock, DType::f32,
              [](int64_t, int64_t, const Tensor&) {});
  return cache;
}

Decoded step_by_step(const nn::GPT& model, const BlockTable& table, const Sequences& prompts,
                     const std::vector<int64_t>& ends, const infer::Storage& storage) {
  const auto cache = filled(model, table, prompts, storage);
  return decode(prompts, ends, [&](const Sequences& tokens) {
    infer::LastRows last(tokens);
    infer::feed(model, *cache, tokens, 1, DType::f32, last.keeper());
    return last.logits(model);
  });
}

Decoded by_replays(const nn::GPT& model, const BlockTable& table, const Sequences& prompts,
                   const std::vector<int64_t>& ends, const infer::Storage& storage) {
  const auto cache = filled(model, table, prompts, storage);
  DecodeStep step(model, *cache, DType::f32);
  Decoded all = decode(prompts, ends, [&](const Sequences& tokens) { return step.run(tokens); });
  EXPECT_EQ(step.repeated(), kSteps - 2);
  for (size_t b = 0; b < prompts.size(); ++b) {
    EXPECT_EQ(cache->position(static_cast<int64_t>(b)), std::ssize(prompts[b]) - 1 + ends[b]);
  }
  return all;
}

void expect_same(const configs::ModelConfig& config, const BlockTable& table,
                 const Sequences& prompts, const std::vector<int64_t>& ends,
                 const infer::Storage& storage = DType::f32) {
  const auto model = tiny_model(config, test_device());
  const Decoded expected = step_by_step(*model, table, prompts, ends, storage);
  const Decoded actual = by_replays(*model, table, prompts, ends, storage);
  EXPECT_EQ(actual.tokens, expected.tokens);
  EXPECT_EQ(actual.logits, expected.logits);
  const auto on_cpu = tiny_model(config, kCpu);
  EXPECT_EQ(step_by_step(*on_cpu, table, prompts, ends, storage).tokens, expected.tokens);
}

/// From position 49 into the second block of 64.
TEST(RecordedStep, ReplaysGiveTheSameLogits) {
  expect_same(tiny_config(), BlockTable({}, 300), {tokens(50)}, {kSteps});
}

TEST(RecordedStep, ReplaysGiveTheSameLogitsToARaggedBatch) {
  expect_same(tiny_config(), BlockTable({}, 300), {tokens(50), tokens(9, 1), tokens(60, 2)},
              {kSteps, kSteps, 15});
}

/// Sinks seen from elsewhere, blocks used again, and codes.
TEST(RecordedStep, ReplaysGiveTheSameLogitsUnderAWindow) {
  expect_same(
      tiny_config(), BlockTable({40, 3}, 300), {tokens(100), tokens(110, 1)}, {kSteps, kSteps},
      infer::Storage({configs::KVType::int8, configs::KVType::int4}, infer::Place::memory, true));
}

TEST(RecordedStep, ReplaysGiveTheSameLogitsAtLearnedPositions) {
  auto config = tiny_config();
  config.position = configs::Position::learned;
  expect_same(config, BlockTable({}, 200), {tokens(50), tokens(62, 3)}, {kSteps, kSteps});
}

/// Passes of other shapes in between, and sequences that change places, cost no new recording.
TEST(RecordedStep, GoesOnAfterOtherPasses) {
  const auto model = tiny_model(tiny_config(), test_device());
  const auto run = [&](const Forward& one, BlockCache& cache) {
    std::vector<std::vector<float>> all;
    for (int round = 0; round < 3; ++round) {
      for (int32_t id = 0; id < 3; ++id) {
        all.push_back(one({{id}, {id + 7}}).to_vector<float>());
      }
      infer::feed(*model, cache, {tokens(4), tokens(2, 1)}, 16, DType::f32,
                  [](int64_t, int64_t, const Tensor&) {});
      cache.truncate(0, cache.position(0) - 1);
      const std::vector<int64_t> parents = {1, 1};
      cache.reorder(parents);
    }
    return all;
  };
  const Sequences prompts = {tokens(50), tokens(61, 1)};
  const auto plain = filled(*model, BlockTable({}, 200), prompts, DType::f32);
  const auto expected = run(
      [&](const Sequences& tokens) {
        infer::LastRows last(tokens);
        infer::feed(*model, *plain, tokens, 1, DType::f32, last.keeper());
        return last.logits(*model);
      },
      *plain);
  const auto cache = filled(*model, BlockTable({}, 200), prompts, DType::f32);
  DecodeStep step(*model, *cache, DType::f32);
  EXPECT_EQ(run([&](const Sequences& tokens) { return step.run(tokens); }, *cache), expected);
  EXPECT_EQ(step.repeated(), 7);
}

TEST(RecordedStep, RefusesWhatAPassRefuses) {
  const auto model = tiny_model(tiny_config(), test_device());
  const auto cache = filled(*model, BlockTable({}, 62), {tokens(58)}, DType::f32);
  DecodeStep step(*model, *cache, DType::f32);
  for (int i = 0; i < 4; ++i) step.run({{1}});
  const auto refusal = [&](int32_t id) -> std::string {
    try {
      step.run({{id}});
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal(kVocab), "[generate] token ids must be in 0..36: got 37");
  EXPECT_EQ(refusal(1), "");
  EXPECT_EQ(refusal(1), "[cache] sequence 0 would have 63 tokens: made for 62");
  nn::Variable(model->parameters().front().value).changed();
  EXPECT_EQ(refusal(1),
            "[cache] the weights have changed since this cache was filled; start a new one");
}

/// The whole way: prompts, steps, choices; and what was done is counted as it is on a processor.
TEST(GenerationOnADevice, GivesTheTokensOfTheProcessor) {
  const Sequences prompts = {tokens(50), tokens(20, 1), tokens(61, 2)};
  auto how = greedy(20, "static,dtype=bf16");
  how.dtype = DType::f32;
  const infer::OnToken until_4 = [](int64_t row, int32_t token) { return row != 1 || token > 4; };
  const auto cpu = infer::generate(*tiny_model(tiny_config(), kCpu), prompts, how, until_4);
  const auto there =
      infer::generate(*tiny_model(tiny_config(), test_device()), prompts, how, until_4);
  EXPECT_EQ(there.tokens, cpu.tokens);
  EXPECT_EQ(there.stats.work.passes, cpu.stats.work.passes);
  EXPECT_EQ(there.stats.work.rows, cpu.stats.work.rows);
  EXPECT_EQ(there.stats.work.cache_bytes_read, cpu.stats.work.cache_bytes_read);
}

}  // namespace
}  // namespace headroom::testing
