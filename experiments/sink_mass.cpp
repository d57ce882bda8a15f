// Reading the mass off what attention was given and its log-sum-exp: one product per query.
#include "experiments/sink_mass.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace headroom::experiments {
namespace {

/// Passages of a pass: enough rows for the products, few enough for the memory.
constexpr int64_t kPassagesAtOnce = 8;

/// Keys that the query at position p sees, key 0 among them or not.
struct Sight {
  int64_t keys = 0;
  bool first = false;
};

Sight sight(const kernels::AttentionMask& mask, int64_t p) {
  if (mask.window == 0 || p < mask.window) {
    return {p + 1, true};
  }
  const int64_t before = p - mask.window + 1;  // keys older than the window
  return {mask.window + std::min(mask.sinks, before), mask.sinks > 0};
}

double product(const float* a, const float* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  }
  return sum;
}

/// Adds one pass of a layer, of whole sequences without a cache, to the sums over its queries. They
/// are formed on the host.
class LayerSums {
 public:
  LayerSums(const kernels::AttentionInputs& in, const Tensor& lse)
      : mask_(in.mask),
        scale_(in.scale),
        q_(in.q.to(kCpu)),
        k_(in.kv.k.to(kCpu)),
        lse_(lse.to(kCpu)),
        sink_logits_(in.sink_logits.defined() ? in.sink_logits.to(kCpu) : Tensor()) {}

  void add(std::vector<double>& first, std::vector<double>& learned, double& uniform) const {
    const int64_t B = q_.dim(0), T = q_.dim(1), H = q_.dim(2);
    const auto* sinks = sink_logits_.defined() ? sink_logits_.data<float>() : nullptr;
    const auto* lse = lse_.data<float>();
    for (int64_t p = 1; p < T; ++p) {
      const Sight seen = sight(mask_, p);
      if (seen.first) {
        uniform += static_cast<double>(B) / static_cast<double>(seen.keys);
      }
      for (int64_t row = 0; row < B * H; ++row) {
        const int64_t b = row / H, h = row % H, at = (b * T + p) * H + h;
        const auto head = static_cast<size_t>(h);
        if (seen.first) {
          first[head] += std::exp(score(b, p, h) - static_cast<double>(lse[at]));
        }
        if (sinks != nullptr) {
          learned[head] += std::exp(static_cast<double>(sinks[h]) - static_cast<double>(lse[at]));
        }
      }
    }
  }

 private:
  /// Scaled score of key 0 for the query at p.
  double score(int64_t b, int64_t p, int64_t h) const {
    const int64_t T = q_.dim(1), H = q_.dim(2), D = q_.dim(3), K = k_.dim(1);
    const float* q = q_.data<float>() + ((b * T + p) * H + h) * D;
    const float* k = k_.data<float>() + (b * T * K + h / (H / K)) * D;
    return scale_ * product(q, k, D);
  }

  const kernels::AttentionMask mask_;
  const double scale_;
  const Tensor q_, k_, lse_, sink_logits_;
};

Tensor batch_of(const Passages& passages, int64_t begin, int64_t end) {
  std::vector<int32_t> ids;
  for (int64_t i = begin; i < end; ++i) {
    const auto& passage = passages.ids[static_cast<size_t>(i)];
    ids.insert(ids.end(), passage.begin(), passage.end() - 1);
  }
  return Tensor::from(ids, {end - begin, passages.tokens});
}

void divide(HeadMap& map, double by) {
  for (auto& heads : map) {
    for (double& value : heads) {
      value /= by;
    }
  }
}

}  // namespace

SinkMass sink_mass(const nn::GPT& model, const Passages& passages, const PartDone& part_done) {
  check(model.dtype() == DType::f32, "[sinks] a model in float32 is needed: got {}",
        name_of(model.dtype()));
  check_input(passages.tokens > 1, "[sinks] a context of at least 2 tokens is needed: got {}",
              passages.tokens);
  const configs::ModelConfig& config = model.config();
  const HeadMap zeros(static_cast<size_t>(config.n_layer),
                      std::vector<double>(static_cast<size_t>(config.n_head), 0.0));
  SinkMass mass{.first = zeros,
                .learned = config.sink == configs::SinkKind::learned ? zeros : HeadMap(),
                .uniform = std::vector<double>(static_cast<size_t>(config.n_layer), 0.0)};
  std::vector<double> unused;
  const nn::AttentionWatch watch = [&](int64_t layer, const kernels::AttentionInputs& in,
                                       const Tensor& lse) {
    const auto at = static_cast<size_t>(layer);
    LayerSums(in, lse).add(mass.first[at], mass.learned.empty() ? unused : mass.learned[at],
                           mass.uniform[at]);
  };
  const autograd::NoGrad no_grad;
  for (int64_t begin = 0; begin < passages.count(); begin += kPassagesAtOnce) {
    part_done(begin, passages.count());
    const int64_t end = std::min(begin + kPassagesAtOnce, passages.count());
    model.hidden(batch_of(passages, begin, end),
                 {.cache = nullptr, .counts = {}, .mask = {}, .watch = &watch});
  }
  const auto queries = static_cast<double>(passages.count() * (passages.tokens - 1));
  divide(mass.first, queries);
  divide(mass.learned, queries);
  for (double& each : mass.uniform) {
    each /= queries;
  }
  return mass;
}

Spread spread_of(const HeadMap& map) {
  Spread spread{.low = std::numeric_limits<double>::infinity(), .high = 0, .mean = 0};
  double count = 0;
  for (const auto& heads : map) {
    for (const double value : heads) {
      spread.low = std::min(spread.low, value);
      spread.high = std::max(spread.high, value);
      spread.mean += value;
      ++count;
    }
  }
  spread.mean /= std::max(count, 1.0);
  return spread;
}

}  // namespace headroom::experiments
