// Cached logits are uncached logits: every number of KV heads, both kinds of positions, every way
// of cutting a sequence up, alone and in ragged batches; and the cases of KVC-01, 04 and 16.
#include <map>
#include <tuple>

#include "infer/block_cache.h"
#include "infer_model.h"

namespace headroom::testing {
namespace {

using infer::BlockCache;
using infer::BlockTable;
using Chunks = std::vector<int64_t>;

enum class Kind { rope_half, rope_interleaved, learned };

configs::ModelConfig config_of(int64_t n_kv_head, Kind kind) {
  configs::ModelConfig config = small_config(n_kv_head, 160);
  config.position = kind == Kind::learned ? configs::Position::learned : configs::Position::rope;
  config.rope_style =
      kind == Kind::rope_interleaved ? configs::RopeStyle::interleaved : configs::RopeStyle::half;
  config.qk_norm = n_kv_head == 4;  // both ways are exercised
  return config;
}

class CachedLogits : public ::testing::TestWithParam<std::tuple<int64_t, Kind, DType>> {
 protected:
  CachedLogits()
      : config_(config_of(std::get<0>(GetParam()), std::get<1>(GetParam()))),
        dtype_(std::get<2>(GetParam())),
        model_(small_model(config_, dtype_)) {}
  configs::ModelConfig config_;
  DType dtype_;
  std::unique_ptr<nn::GPT> model_;
};

const std::vector<Chunks> kChunkings = {{1000}, {1}, {3}, {16}, {63, 1}, {1, 63, 5, 40, 2, 64}};

TEST_P(CachedLogits, EqualUncachedOnesForEveryChunking) {
  const auto ids = tokens(150);
  const auto expected = whole_logits(*model_, ids);
  for (const Chunks& chunks : kChunkings) {
    BlockCache cache(config_, BlockTable({}, 150), 1, dtype_);
    const auto logits = cached_logits(*model_, cache, {ids}, chunks);
    EXPECT_LE(error(logits[0], expected), bound(dtype_)) << "chunks of " << chunks[0];
  }
}

TEST_P(CachedLogits, EqualUncachedOnesInRaggedBatches) {
  const infer::Sequences ids = {tokens(70, 1), tokens(5, 2), tokens(1, 3), tokens(131, 4)};
  for (const Chunks& chunks : kChunkings) {
    BlockCache cache(config_, BlockTable({}, 131), 4, dtype_);
    const auto logits = cached_logits(*model_, cache, ids, chunks);
    for (size_t b = 0; b < ids.size(); ++b) {
      EXPECT_LE(error(logits[b], whole_logits(*model_, ids[b])), bound(dtype_))
          << "sequence " << b << ", chunks of " << chunks[0];
    }
  }
}

TEST_P(CachedLogits, EqualThoseOfAConcatenatingCache) {
  const infer::Sequences ids = {tokens(90, 1), tokens(33, 2)};
  for (const Chunks& chunks : kChunkings) {
    ConcatenatingCache naive(config_, 2);
    BlockCache cache(config_, BlockTable({}, 90), 2, dtype_);
    const auto expected = cached_logits(*model_, naive, ids, chunks);
    const auto logits = cached_logits(*model_, cache, ids, chunks);
    for (size_t b = 0; b < ids.size(); ++b) {
      EXPECT_LE(error(logits[b], expected[b]), bound(dtype_));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Heads, CachedLogits,
    ::testing::Combine(::testing::Values(8, 4, 2, 1),
                       ::testing::Values(Kind::rope_half, Kind::rope_interleaved, Kind::learned),
                       ::testing::Values(DType::f64, DType::f32)));

/// KVC-01: the mask is aligned to the end of the keys.
TEST(CausalMask, ALaterTokenChangesNoEarlierLogits) {
  for (const int64_t n_kv_head : {8, 4, 1}) {
    const auto config = small_config(n_kv_head);
    const auto model = small_model(config, DType::f64);
    auto ids = tokens(64);
    auto changed = ids;
    changed[40] = (ids[40] + 1) % static_cast<int32_t>(kVocab);
    for (const Chunks& chunks :
         std::vector<Chunks>{{64}, {1}, {63, 1}, {1, 63}, {32}, {7}, {5, 30, 2, 27}}) {
      BlockCache a(config, BlockTable({}, 64), 1, DType::f64);
      BlockCache b(config, BlockTable({}, 64), 1, DType::f64);
      const auto before = cached_logits(*model, a, {ids}, chunks)[0];
      const auto after = cached_logits(*model, b, {changed}, chunks)[0];
      const auto split = static_cast<std::ptrdiff_t>(40 * kVocab);
      EXPECT_TRUE(std::equal(before.begin(), before.begin() + split, after.begin()));
      EXPECT_GT(error({before.begin() + split, before.end()}, {after.begin() + split, after.end()}),
                1e-3);
      EXPECT_LE(error(before, whole_logits(*model, ids)), 1e-12);
    }
  }
}

/// KVC-04: one token at a time from any position is that position's token.
TEST(Rope, DecodesFromAnyPosition) {
  const auto config = small_config(2, 64);
  const auto model = small_model(config, DType::f64);
  const auto ids = tokens(202);
  const auto expected = whole_logits(*model, ids);
  for (const int64_t start : {0, 1, 31, 62, 63, 64, 65, 200}) {
    BlockCache cache(config, BlockTable({}, 202), 1, DType::f64);
    const auto logits =
        cached_logits(*model, cache, {ids}, start == 0 ? Chunks{1} : Chunks{start, 1})[0];
    EXPECT_LE(error(logits, expected), 1e-12) << start;
  }
}

/// KVC-16: prompts of any lengths in any order.
TEST(RaggedBatch, OrderOnlyReordersTheOutput) {
  for (const auto kind : {Kind::rope_half, Kind::learned}) {
    const auto config = config_of(2, kind);
    const auto model = small_model(config, DType::f64);
    const infer::Sequences ids = {tokens(1, 1), tokens(5, 2), tokens(17, 3), tokens(64, 4)};
    const infer::Sequences shuffled = {ids[2], ids[0], ids[3], ids[1]};
    BlockCache a(config, BlockTable({}, 64), 4, DType::f64);
    BlockCache b(config, BlockTable({}, 64), 4, DType::f64);
    const auto first = cached_logits(*model, a, ids, {16});
    const auto second = cached_logits(*model, b, shuffled, {16});
    EXPECT_LE(error(second[0], first[2]), 1e-12);
    EXPECT_LE(error(second[1], first[0]), 1e-12);
    EXPECT_LE(error(second[2], first[3]), 1e-12);
    EXPECT_LE(error(second[3], first[1]), 1e-12);
  }
}

/// A row that is given nothing changes nothing, whenever it stops.
TEST(RaggedBatch, ARowThatIsDoneChangesNothingForTheOthers) {
  const auto config = small_config(2);
  const auto model = small_model(config, DType::f64);
  const auto ids = tokens(40, 5);
  BlockCache cache(config, BlockTable({}, 40), 3, DType::f64);
  const auto logits = cached_logits(*model, cache, {{}, ids, tokens(7, 6)}, {5});
  EXPECT_TRUE(logits[0].empty());
  EXPECT_LE(error(logits[1], whole_logits(*model, ids)), 1e-12);
}

/// Remembers the view that every append returned.
class WatchedCache final : public nn::KVCache {
 public:
  explicit WatchedCache(BlockCache& inner) : inner_(inner) {}
  int64_t batch() const override { return inner_.batch(); }
  kernels::AttentionMask mask(int64_t layer) const override { return inner_.mask(layer); }
  int64_t position(int64_t b) const override { return inner_.position(b); }
  kernels::KVView append(int64_t layer, const Tensor& k, const Tensor& v,
                         const Tensor& counts) override {
    kernels::KVView view = inner_.append(layer, k, v, counts);
    views[layer] = view;
    return view;
  }
  std::map<int64_t, kernels::KVView> views;

 private:
  BlockCache& inner_;
};

TEST(OldKeysAndValues, DoNotChangeAsTheSequenceGrows) {
  const auto config = small_config(2);
  const auto model = small_model(config, DType::f64);
  const auto ids = tokens(150);
  BlockCache inner(config, BlockTable({}, 150), 1, DType::f64);
  WatchedCache cache(inner);
  std::map<int64_t, std::pair<std::vector<double>, std::vector<double>>> before;
  const int64_t row = config.kv_dim();
  for (int64_t at = 0; at < 150; ++at) {
    cached_logits(*model, cache, {{ids[static_cast<size_t>(at)]}}, {1});
    for (auto& [layer, view] : cache.views) {
      const auto k = view.k.to_vector<double>(), v = view.v.to_vector<double>();
      auto& [old_k, old_v] = before[layer];
      ASSERT_TRUE(std::equal(old_k.begin(), old_k.end(), k.begin())) << at;
      ASSERT_TRUE(std::equal(old_v.begin(), old_v.end(), v.begin())) << at;
      old_k.assign(k.begin(), k.begin() + (at + 1) * row);
      old_v.assign(v.begin(), v.begin() + (at + 1) * row);
      ASSERT_NE(old_k[static_cast<size_t>(at * row)], 0.0);
      // What has not been written yet is zero.
      ASSERT_TRUE(
          std::all_of(k.begin() + (at + 1) * row, k.end(), [](double x) { return x == 0; }));
    }
  }
  EXPECT_EQ(before.size(), 2U);
}

TEST(TapeNodes, NoneExistDuringPrefillAndDecoding) {
  const auto config = small_config(2);
  const auto model = small_model(config);
  BlockCache cache(config, BlockTable({}, 20), 1);
  const auto ids = tokens(20);
  infer::feed(*model, cache, {ids}, 3, DType::f32,
              [](int64_t, int64_t, const Tensor&) { EXPECT_EQ(autograd::live_nodes(), 0); });
  EXPECT_TRUE(autograd::recording());
  // The same model does record when asked for a gradient.
  const auto loss = model->loss(Tensor::from(ids, {1, 20}), Tensor::from(ids, {1, 20}), {});
  EXPECT_GT(autograd::live_nodes(), 0);
}

TEST(ChangedWeights, RefuseTheOldCache) {
  const auto config = small_config(2);
  const auto model = small_model(config);
  BlockCache cache(config, BlockTable({}, 20), 1);
  const auto nothing = [](int64_t, int64_t, const Tensor&) {};
  infer::feed(*model, cache, {tokens(3)}, 3, DType::f32, nothing);
  model->parameters()[0].value.changed();
  EXPECT_THROW(infer::feed(*model, cache, {tokens(1)}, 1, DType::f32, nothing), Error);
}

/// What weights are stored as changes the logits, but not that cached ones are the uncached ones:
/// many rows at once and one alone are multiplied by different kernels.
TEST(StoredWeights, GiveTheSameLogitsWithACacheAndWithoutOne) {
  const configs::ModelConfig config = small_config();
  const auto ids = tokens(60);
  for (const DType type : {DType::f32, DType::bf16, DType::i8}) {
    const auto model = small_model(config);
    const auto plain = whole_logits(*model, ids);
    model->store_weights(type);
    const auto whole = whole_logits(*model, ids);
    EXPECT_EQ(whole == plain, type == DType::f32);
    BlockCache cache(config, BlockTable({}, std::ssize(ids)), 1);
    const auto cached = cached_logits(*model, cache, {ids}, {40, 1})[0];
    EXPECT_LE(error(cached, whole), bound(DType::f32)) << name_of(type);
    model->store_weights(DType::i8);
    EXPECT_THROW(cached_logits(*model, cache, {{1}}, {1}), Error);  // a cache of other weights
  }
}

}  // namespace
}  // namespace headroom::testing
