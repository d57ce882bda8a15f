// Exhibit attention-fused: attention that stores every score against attention in tiles.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "experiments/ceilings.h"
#include "experiments/exhibits.h"
#include "experiments/line_chart.h"
#include "experiments/milliseconds.h"
#include "experiments/plain_attention.h"
#include "kernels/backend.h"
#include "kernels/kv_view.h"

namespace headroom::experiments {
namespace {

/// A single query takes a tenth of a millisecond: what else the machine does would decide five.
constexpr int kRuns = 5, kSingleRuns = 101;

struct Pair {
  int64_t queries = 0, keys = 0;
  double plain_ms = 0, tiled_ms = 0;
  double largest_difference = 0;
  double ratio() const { return plain_ms / tiled_ms; }
};

template <class F>
double median_ms(int runs, const F& f) {
  f();  // warms up
  std::vector<double> ms(static_cast<size_t>(runs));
  std::ranges::generate(ms, [&f] { return milliseconds(f); });
  return median(ms);
}

Tensor random(const Shape& shape, const char* name) {
  Tensor x = Tensor::empty(shape, DType::f32);
  fill_normal(x, RandomStream(1, name), 1.0);
  return x;
}

/// Both ways, the last `queries` of `keys` positions, one sequence. The plain one is given its
/// tensors heads first, so that only attention itself is timed.
Pair compare(int64_t heads, int64_t size, int64_t queries, int64_t keys) {
  const Tensor q = random({queries, heads, size}, "fused q"), k = random({keys, heads, size}, "k"),
               v = random({keys, heads, size}, "v");
  const Tensor q_heads = heads_first(q), k_heads = heads_first(k), v_heads = heads_first(v);
  const double scale = 1 / std::sqrt(static_cast<double>(size));
  Pair pair{.queries = queries, .keys = keys};
  const int runs = queries == 1 ? kSingleRuns : kRuns;
  Tensor plain;
  pair.plain_ms = median_ms(runs, [&] {
    Tensor scores = plain_scores(q_heads, k_heads, scale);
    mask_causally(scores);
    plain = plain_weighted_sum(scores, v_heads);
  });
  const kernels::AttentionInputs in{
      .q = q.reshape({1, queries, heads, size}),
      .q_sink = {},
      .kv = kernels::dense_view(k.reshape({1, keys, heads, size}),
                                v.reshape({1, keys, heads, size}), queries),
      .sink_logits = {},
      .mask = {},
      .scale = scale};
  Tensor out = Tensor::empty({1, queries, heads, size}, DType::f32),
         lse = Tensor::empty({1, queries, heads}, DType::f32);
  pair.tiled_ms = median_ms(runs, [&] { kernels::backend(kCpu).attention(in, out, lse); });
  const auto tiled = heads_first(out.reshape({queries, heads, size})).to_vector<float>();
  const auto expected = plain.to_vector<float>();
  for (size_t i = 0; i < tiled.size(); ++i) {
    pair.largest_difference =
        std::max<double>(pair.largest_difference, std::abs(tiled[i] - expected[i]));
  }
  return pair;
}

}  // namespace

Exhibit attention_fused_exhibit(const Study& study) {
  const configs::ModelConfig m = study.preset("gpt-124m").model;
  std::vector<int64_t> lengths = {512, 1024, 2048};
  if (!study.quick) lengths.push_back(4096);
  Exhibit exhibit;
  exhibit.setting = fmt::format(
      "One layer's attention, {} heads of {}, f32. Materialised: scores, mask, softmax and "
      "weighted "
      "sum as four passes, every score in memory. Tiled: this project's kernel. Without a cache "
      "all "
      "queries are new; with one, only the last is. Medians of {}, and of {} of a single query.",
      m.n_head, m.head_dim(), kRuns, kSingleRuns);
  exhibit.table = {
      {"keys", "queries", "materialised (ms)", "tiled (ms)", "ratio", "scores in memory (MB)"}};
  Series whole{.name = "without a cache"}, last{.name = "with a cache"};
  double difference = 0;
  Pair longest_whole, longest_last;
  int64_t done = 0;
  for (const int64_t keys : lengths) {
    for (const bool cached : {false, true}) {
      study.progress(done++, 2 * std::ssize(lengths));
      const Pair pair = compare(m.n_head, m.head_dim(), cached ? 1 : keys, keys);
      difference = std::max(difference, pair.largest_difference);
      (cached ? longest_last : longest_whole) = pair;
      (cached ? last : whole).points.emplace_back(static_cast<double>(keys), pair.ratio());
      const double scores = 4e-6 * static_cast<double>(m.n_head * pair.queries * pair.keys);
      exhibit.table.push_back({std::to_string(keys), std::to_string(pair.queries),
                               fmt::format("{:.3f}", pair.plain_ms),
                               fmt::format("{:.3f}", pair.tiled_ms),
                               fmt::format("{:.1f}", pair.ratio()), fmt::format("{:.2f}", scores)});
    }
  }
  exhibit.rows = {
      {.figure = fmt::format("materialised over tiled, {} queries of {} keys",
                             longest_whole.queries, longest_whole.keys),
       .published = 10,
       .published_to = 20,
       .ours = longest_whole.ratio(),
       .unit = "times",
       .note = "without a cache; folklore, no setting given"},
      {.figure = fmt::format("materialised over tiled, 1 query of {} keys", longest_last.keys),
       .published = 10,
       .published_to = 20,
       .ours = longest_last.ratio(),
       .unit = "times",
       .note = "with a cache; folklore, no setting given"},
      {.figure = "largest difference between the two",
       .ours = difference,
       .note = "of outputs that are averages of normal numbers"}};
  const std::vector<Series> series = {whole, last};
  std::vector<double> tics(lengths.begin(), lengths.end());
  exhibit.chart = line_chart({.xlabel = "keys",
                              .ylabel = "materialised / tiled (times)",
                              .series = series,
                              .log_x = true,
                              .y_from_zero = true,
                              .xtics = tics});
  exhibit.legend = legend_of(series);
  exhibit.caption = "How many times as long the materialised attention takes.";
  exhibit.why =
      "The folklore is about GPUs, whose arithmetic outruns their memory by far more than a "
      "processor's does. What tiles save is traffic of the score matrix, and half of the products, "
      "which the mask would throw away; with a cache there is one row of scores per head and "
      "little "
      "to save.";
  return exhibit;
}

}  // namespace headroom::experiments
