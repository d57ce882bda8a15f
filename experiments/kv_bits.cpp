// Losses under nine caches per model, and the comparison of models.
#include "experiments/kv_bits.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "experiments/statistics.h"

namespace headroom::experiments {
namespace {

using configs::KVType;
using configs::KVTypes;

constexpr std::array kTypes = {KVType::bf16, KVType::int8, KVType::int4};

std::vector<double> losses_of(const nn::GPT& model, const Passages& passages, KVTypes types) {
  infer::CacheSpec cache;
  cache.k = types.k;
  cache.v = types.v;
  return passage_loss(model, passages, cache).by_passage;
}

std::string with_interval(const MeanOverPassages& value) {
  return fmt::format("{:+.4f} ± {:.4f}", value.mean, value.half_width);
}

}  // namespace

std::vector<BitsLoss> bits_losses(const nn::GPT& model, const Passages& passages,
                                  const PartDone& part_done) {
  constexpr auto kParts = static_cast<int64_t>(kTypes.size() * kTypes.size()) + 1;
  int64_t done = 0;
  part_done(done++, kParts);
  const std::vector<double> exact = losses_of(model, passages, {KVType::f32, KVType::f32});
  std::vector<BitsLoss> all;
  for (const KVType k : kTypes) {
    for (const KVType v : kTypes) {
      part_done(done++, kParts);
      BitsLoss loss{.n_kv_head = model.config().n_kv_head,
                    .types = {k, v},
                    .by_passage = losses_of(model, passages, {k, v})};
      for (size_t i = 0; i < exact.size(); ++i) {
        loss.by_passage[i] -= exact[i];
      }
      all.push_back(std::move(loss));
    }
  }
  return all;
}

MeanOverPassages mean_over_passages(const std::vector<double>& by_passage) {
  const auto n = static_cast<double>(by_passage.size());
  const double middle = mean(by_passage);
  if (by_passage.size() < 2) {
    return {middle, 0};
  }
  double squares = 0;
  for (const double each : by_passage) {
    squares += (each - middle) * (each - middle);
  }
  return {middle, 1.96 * std::sqrt(squares / (n - 1) / n)};
}

std::string bits_figure(int64_t n_kv_head, KVTypes types) {
  return fmt::format("n_kv_head {}, {} cache", n_kv_head, configs::to_string(types));
}

std::string bits_answer(const std::vector<BitsLoss>& losses) {
  const BitsLoss *fewest = nullptr, *most = nullptr;
  for (const BitsLoss& each : losses) {
    if (each.types == KVTypes{KVType::int4, KVType::int4}) {
      fewest = fewest == nullptr || each.n_kv_head < fewest->n_kv_head ? &each : fewest;
      most = most == nullptr || each.n_kv_head > most->n_kv_head ? &each : most;
    }
  }
  if (fewest == nullptr || fewest == most) {
    return "With one n_kv_head there is nothing to compare.";
  }
  std::vector<double> difference;
  for (size_t i = 0; i < fewest->by_passage.size(); ++i) {
    difference.push_back(fewest->by_passage[i] - most->by_passage[i]);
  }
  const MeanOverPassages apart = mean_over_passages(difference);
  const std::string verdict =
      std::abs(apart.mean) <= apart.half_width ? "these passages resolve no difference"
      : apart.mean > 0 ? "here the model with fewer KV heads quantises worse"
                       : "here the model with fewer KV heads quantises better";
  return fmt::format(
      "With keys and values in int4, n_kv_head {} loses {} nats per token and n_kv_head {} loses "
      "{}; the difference is {}: {}.",
      fewest->n_kv_head, with_interval(mean_over_passages(fewest->by_passage)), most->n_kv_head,
      with_interval(mean_over_passages(most->by_passage)), with_interval(apart), verdict);
}

}  // namespace headroom::experiments
