// The loss of a stream, against the losses that its logits give by hand.
#include "infer/stream_loss.h"

#include "infer_model.h"

namespace headroom::testing {
namespace {

using infer::StreamOptions;
using kernels::AttentionMask;

/// -log softmax of each next token, one for each of ids but the first.
std::vector<double> losses_by_hand(const nn::GPT& model, const std::vector<int32_t>& ids,
                                   AttentionMask mask) {
  const auto logits = whole_logits(model, {ids.begin(), ids.end() - 1}, mask);
  std::vector<double> losses;
  for (size_t i = 0; i + 1 < ids.size(); ++i) {
    double sum = 0;
    for (int64_t v = 0; v < kVocab; ++v) {
      sum += std::exp(logits[i * kVocab + static_cast<size_t>(v)]);
    }
    losses.push_back(std::log(sum) - logits[i * kVocab + static_cast<size_t>(ids[i + 1])]);
  }
  return losses;
}

double sum(const std::vector<double>& x) {
  double total = 0;
  for (const double each : x) {
    total += each;
  }
  return total;
}

const infer::OnLosses kIgnore = [](int64_t, std::span<const double>) {};

TEST(StreamLoss, IsThatOfTheTokensAsTheCacheShowsThem) {
  const auto config = small_config(2, 32);
  const auto model = small_model(config, DType::f64);
  const auto ids = tokens(300);
  for (const std::string text : {"static", "static,window=20,sinks=3", "static,window=70"}) {
    auto spec = infer::parse_cache_spec(text);
    const auto expected = losses_by_hand(*model, ids, spec.mask);
    for (const int64_t chunk : {0, 1, 7, 64, 400}) {
      for (const bool recompute : {false, true}) {
        spec.recompute = recompute;
        std::vector<double> losses(299, -1);
        const auto loss = infer::stream_loss(
            *model, ids, {.cache = spec, .context = 0, .dtype = DType::f64, .chunk = chunk},
            [&](int64_t position, std::span<const double> nats) {
              std::copy(nats.begin(), nats.end(), losses.begin() + position);
            });
        EXPECT_LE(error(losses, expected), 1e-10) << text << ", chunk " << chunk;
        EXPECT_NEAR(loss.sum_nats, sum(expected), 1e-8);
        EXPECT_EQ(loss.tokens, 299);
        EXPECT_EQ(loss.streams, 1);
        EXPECT_EQ(loss.cache_bytes == 0, recompute);
        EXPECT_EQ(loss.cache_bytes, 2 * 2 * 2 * 8 * loss.cache_slots * 8);
      }
    }
  }
}

TEST(StreamLoss, BeginsEachStreamWithAnEmptyCache) {
  const auto model = small_model(small_config(2, 32), DType::f64);
  const auto ids = tokens(100);
  for (const std::string text : {"static", "none", "static,window=9"}) {
    const auto spec = infer::parse_cache_spec(text);
    double expected = 0;
    for (size_t begin = 0; begin < 99; begin += 40) {
      expected += sum(
          losses_by_hand(*model,
                         {ids.begin() + static_cast<std::ptrdiff_t>(begin),
                          ids.begin() + static_cast<std::ptrdiff_t>(std::min(begin + 41, 100UL))},
                         spec.mask));
    }
    int64_t firsts = 0;
    const auto loss = infer::stream_loss(
        *model, ids, {.cache = spec, .context = 40, .dtype = DType::f64, .chunk = 0},
        [&](int64_t position, std::span<const double>) { firsts += position == 0 ? 1 : 0; });
    EXPECT_NEAR(loss.sum_nats, expected, 1e-8) << text;
    EXPECT_EQ(loss.tokens, 99);
    EXPECT_EQ(loss.streams, 3);
    EXPECT_EQ(firsts, 3);
  }
}

TEST(StreamLoss, RefusesWhatHasNoLoss) {
  auto config = small_config(2, 32);
  config.position = configs::Position::learned;
  const auto model = small_model(config);
  EXPECT_THROW(infer::stream_loss(*model, tokens(1), {}, kIgnore), InputError);
  EXPECT_THROW(infer::stream_loss(*model, tokens(40), {}, kIgnore), InputError);
  EXPECT_NO_THROW(infer::stream_loss(*model, tokens(33), {}, kIgnore));
  StreamOptions cut;
  cut.context = 32;
  EXPECT_NO_THROW(infer::stream_loss(*model, tokens(70), cut, kIgnore));
}

}  // namespace
}  // namespace headroom::testing
