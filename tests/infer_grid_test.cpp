// Options that work alone work together: every cache, type, number of KV heads, way of choosing and
// batch (KVC-10), to three windows' length; and rows of a ragged batch as if alone.
#include "infer/beam.h"
#include "infer/speculate.h"
#include "infer_model.h"

namespace headroom::testing {
namespace {

using infer::GenerateOptions;
using infer::Sequences;

enum class Way { greedy, sampled, beams, draft };

Sequences tokens_by(Way way, const nn::GPT& model, const nn::GPT& draft, const Sequences& prompts,
                    const std::string& cache) {
  constexpr int64_t kTokens = 24;
  GenerateOptions how = greedy(kTokens, cache, way == Way::sampled ? 1.0 : 0.0);
  if (way == Way::beams) {
    how.beams = 2;
    return infer::beam_search(
               model, prompts, how, [](int64_t, std::span<const int32_t>) { return false; },
               [] { return true; })
        .best.tokens;
  }
  if (way == Way::draft) {
    how.draft_tokens = 3;
    return infer::speculate(model, draft, prompts, how, [](int64_t, int32_t) { return true; })
        .tokens;
  }
  return run(model, prompts, how).tokens;
}

void expect_cell(const nn::GPT& model, const nn::GPT& draft, const std::string& cache) {
  const Sequences prompts = {tokens(5, 1), tokens(1, 2), tokens(70, 3)};
  for (const Way way : {Way::greedy, Way::sampled, Way::beams, Way::draft}) {
    const Sequences together = tokens_by(way, model, draft, prompts, cache);
    for (size_t row = 0; row < prompts.size(); ++row) {
      ASSERT_EQ(together[row].size(), 24U) << cache;
      // A row's number names its random stream: alone it is row 0.
      if (way != Way::sampled || row == 0) {
        ASSERT_EQ(tokens_by(way, model, draft, {prompts[row]}, cache)[0], together[row])
            << cache << ", row " << row << ", way " << static_cast<int>(way);
      }
    }
  }
}

std::vector<std::string> all_caches(const std::vector<std::string>& storages) {
  std::vector<std::string> all = {"none"};
  for (const std::string slots : {"static", "static,window=8", "static,window=8,sinks=4"}) {
    for (const std::string& storage : storages) {
      all.push_back(slots + storage);
    }
  }
  return all;
}

TEST(Grid, EveryCellRunsToItsEndAndRowByRow) {
  const auto draft = small_model(small_config(1, 200), DType::f64);
  for (const int64_t n_kv_head : {8, 2, 1}) {
    auto config = small_config(n_kv_head, 200);
    config.n_layer = 1;
    const auto model = small_model(config, DType::f64);
    for (const std::string& cache :
         all_caches({"", ",dtype=f16", ",dtype=int8", ",k=int8,v=int4,rotate=hadamard",
                     ",dtype=bf16,place=file"})) {
      expect_cell(*model, *draft, cache);
    }
  }
}

TEST(Grid, HoldsForLatentsAndWindowsOfTheModelsOwn) {
  const auto draft = small_model(small_config(1, 200), DType::f64);
  auto latent = small_config(8, 200), local = small_config(2, 200);
  latent.attention = configs::AttentionKind::mla;
  local.window = 16;
  local.window_pattern = "LG";
  for (const auto& config : {latent, local}) {
    const auto model = small_model(config, DType::f64);
    for (const std::string& cache : all_caches({"", ",dtype=int8"})) {
      expect_cell(*model, *draft, cache);
    }
  }
}

/// What a latent can't have is refused at the start, naming both (KVC-17).
TEST(Grid, RefusesALatentInTwoTypes) {
  auto config = small_config(8, 200);
  config.attention = configs::AttentionKind::mla;
  for (const std::string cache : {"static,k=int8,v=int4", "static,dtype=int8,rotate=hadamard"}) {
    try {
      infer::plan_generation(config, {5}, greedy(10, cache));
      FAIL() << cache;
    } catch (const InputError& e) {
      EXPECT_NE(std::string(e.what()).find("mla"), std::string::npos) << e.what();
    }
  }
}

/// KVC-14: room that isn't needed changes nothing.
TEST(Grid, RoomBeyondTheNeedChangesNothing) {
  const auto config = small_config(2, 64);
  const auto model = small_model(config, DType::f64);
  for (const std::string text : {"static", "static,window=20,sinks=3", "static,dtype=int8"}) {
    const auto spec = infer::parse_cache_spec(text);
    std::vector<double> expected;
    for (const int64_t room : {150, 151, 250}) {
      infer::BlockCache cache(config, infer::BlockTable(spec.mask, room), 1,
                              spec.storage(DType::f64));
      const auto logits = cached_logits(*model, cache, {tokens(150)}, {64})[0];
      expected = expected.empty() ? logits : expected;
      EXPECT_EQ(logits, expected) << text << ", room " << room;
    }
  }
}

}  // namespace
}  // namespace headroom::testing
