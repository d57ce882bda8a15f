// What a cache keeps: its bytes by type and place, that a vector is rounded once, and what rounding
// costs in loss.
#include "infer/kv_store.h"

#include <cstring>
#include <numeric>

#include "infer/block_cache.h"
#include "infer/stream_loss.h"
#include "infer_model.h"
#include "tensor/allocator.h"

namespace headroom::testing {
namespace {

using configs::KVType;
using configs::KVTypes;
using infer::KVStore;
using infer::Place;
using infer::Storage;

const configs::KVShape kTwoHeadsOf20{
    .heads = 2, .key_size = 20, .value_size = 36, .value_in_key = false};

/// KVC-13: slots * heads * (key + value), scales included, as counted by hand; a file takes nothing
/// from the allocator.
TEST(KVStore, TakesItsTypesBytes) {
  struct Case {
    KVTypes types;
    int64_t bytes;  // of a slot
  };
  for (const auto& [types, bytes] : std::vector<Case>{
           {{KVType::f64, KVType::f64}, 2 * (160 + 288)},
           {{KVType::f32, KVType::f32}, 2 * (80 + 144)},
           {{KVType::bf16, KVType::f16}, 2 * (40 + 72)},
           {{KVType::int8, KVType::int8}, 2 * (20 + 2 + 36 + 4)},
           {{KVType::int4, KVType::int4}, 2 * (10 + 2 + 18 + 4)},
           {{KVType::f32, KVType::int4}, 2 * (80 + 18 + 4)},
       }) {
    for (const Place place : {Place::memory, Place::host, Place::file}) {
      const size_t before = allocator(kCpu).bytes_in_use();
      const KVStore store(kTwoHeadsOf20, 70, Storage(types, place, false), kCpu);
      const auto taken = static_cast<int64_t>(allocator(kCpu).bytes_in_use() - before);
      EXPECT_EQ(store.bytes(), 70 * bytes) << to_string(types);
      EXPECT_EQ(taken, place == Place::file ? 0 : 70 * bytes) << to_string(types);
    }
  }
}

TEST(KVStore, ALatentIsStoredOnce) {
  const configs::KVShape latent{.heads = 1, .key_size = 40, .value_size = 32, .value_in_key = true};
  const KVStore store(latent, 10, Storage({KVType::int8, KVType::int8}, Place::memory, false),
                      kCpu);
  EXPECT_EQ(store.bytes(), 10 * (40 + 2 * 2));
  kernels::KVView view;
  store.show(view, {});
  EXPECT_FALSE(view.v.defined());
  EXPECT_EQ(view.width_of_values(), 32);
}

Tensor random_rows(int64_t rows, int64_t heads, int64_t width, uint64_t row) {
  Tensor x = Tensor::empty({rows, heads, width}, DType::f32);
  fill_normal(x, RandomStream(3, "rows", row), 1.0);
  return x;
}

Tensor slots_from(int32_t first, int64_t count) {
  std::vector<int32_t> slots(static_cast<size_t>(count));
  std::iota(slots.begin(), slots.end(), first);
  return Tensor::from(slots, {count});
}

std::vector<std::vector<char>> bytes_of(const KVStore& store, int64_t begin, int64_t end) {
  std::vector<std::vector<char>> all;
  for (const KVStore::Part& part : store.parts()) {
    const Tensor rows = part.tensor.rows(begin, end);
    const auto* raw = static_cast<const char*>(rows.raw());
    all.emplace_back(raw, raw + rows.nbytes());
  }
  return all;
}

/// KVC-12: what is stored is rounded once: later writes, copies and RAM given back change no bit.
TEST(KVStore, RoundsAVectorOnce) {
  for (const Place place : {Place::memory, Place::file}) {
    for (const KVType type : {KVType::f16, KVType::int8, KVType::int4}) {
      KVStore store(kTwoHeadsOf20, 2048, Storage({type, type}, place, false), kCpu);
      const Tensor k = random_rows(100, 2, 20, 0), v = random_rows(100, 2, 36, 1);
      store.write(k, v, slots_from(0, 100));
      const auto before = bytes_of(store, 0, 100);
      store.write(random_rows(9, 2, 20, 2), random_rows(9, 2, 36, 3), slots_from(100, 9));
      store.let_go();
      store.bring_back();
      EXPECT_EQ(bytes_of(store, 0, 100), before);
      store.copy(3, 1000, 97);
      store.let_go();
      EXPECT_EQ(bytes_of(store, 1000, 1097), bytes_of(store, 3, 100));
      // The rest is as it was made: zeros.
      for (const auto& part : bytes_of(store, 109, 1000)) {
        EXPECT_TRUE(std::all_of(part.begin(), part.end(), [](char c) { return c == 0; }));
      }
    }
  }
}

/// KVC-12: int8 costs less than 1 % of the loss for every n_kv_head, at lengths across blocks that
/// are no multiple of 64, with heads that are no multiple of a group; and the error does not grow
/// with the position.
TEST(StoredLoss, EightBitsCostLessThanAHundredth) {
  for (const int64_t n_kv_head : {8, 2, 1}) {
    auto config = small_config(n_kv_head, 2048);
    config.given_head_dim = 20;
    const auto model = small_model(config);
    for (const int64_t length : {64, 515, 2047}) {
      const auto ids = tokens(length);
      const auto losses = [&](const std::string& cache) {
        std::vector<double> all;
        infer::stream_loss(*model, ids, {.cache = infer::parse_cache_spec(cache)},
                           [&](int64_t, std::span<const double> nats) {
                             all.insert(all.end(), nats.begin(), nats.end());
                           });
        return all;
      };
      const std::vector<double> exact = losses("static"), rounded = losses("static,dtype=int8");
      const auto sum = [](const std::vector<double>& x) {
        return std::accumulate(x.begin(), x.end(), 0.0);
      };
      EXPECT_NE(sum(rounded), sum(exact));
      EXPECT_NEAR(sum(rounded) / sum(exact), 1.0, 0.01) << n_kv_head << ", " << length;
      const auto mean_error = [&](size_t begin, size_t end) {
        double total = 0;
        for (size_t i = begin; i < end; ++i) total += std::abs(rounded[i] - exact[i]);
        return total / static_cast<double>(end - begin);
      };
      if (length > 1000) {
        EXPECT_LT(mean_error(1500, 2046), 2 * mean_error(16, 512)) << n_kv_head;
      }
    }
  }
}

/// KVC-13: each option does what it says: the bytes are those of the formula, at every length.
TEST(StoredCache, HasTheBytesThatItsOptionsSay) {
  const auto config = small_config(2, 4096);  // 2 layers of 2 heads of 8
  const auto model = small_model(config);
  for (const int64_t count : {10, 200, 1000}) {
    const std::vector<std::pair<std::string, int64_t>> bytes_per_token = {
        {"static", 2 * 2 * 2 * 8 * 4},
        {"static,dtype=bf16", 2 * 2 * 2 * 8 * 2},
        {"static,dtype=int8", 2 * 2 * 2 * 10},
        {"static,dtype=int4", 2 * 2 * 2 * 6},
        {"static,k=int8,v=f16", 2 * 2 * (10 + 16)}};
    for (const auto& [cache, bytes] : bytes_per_token) {
      infer::GenerateOptions how;
      how.tokens = count;
      how.sampling.temperature = 0;
      how.cache = infer::parse_cache_spec(cache);
      const auto got =
          infer::generate(*model, {tokens(3)}, how, [](int64_t, int32_t) { return true; });
      EXPECT_EQ(got.stats.cache_bytes_held, bytes * (3 + count)) << cache;
      EXPECT_EQ(infer::plan_generation(config, {3}, how).cache_bytes, bytes * (3 + count)) << cache;
    }
  }
}

}  // namespace
}  // namespace headroom::testing
