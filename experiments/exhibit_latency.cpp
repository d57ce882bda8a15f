// Exhibits latency and end-to-end: the next token with and without a cache, and 256 of them.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "configs/memory.h"
#include "experiments/exhibits.h"
#include "experiments/latency.h"
#include "experiments/line_chart.h"
#include "experiments/timed_model.h"
#include "infer/engine.h"
#include "infer/verify.h"

namespace headroom::experiments {
namespace {

struct PublishedStep {
  int64_t context;
  double naive_ms, cached_ms;
};
constexpr std::array<PublishedStep, 4> kPublishedSteps = {
    {{512, 9.84, 9.63}, {1024, 10.44, 9.81}, {2048, 21.71, 9.55}, {4096, 48.61, 9.62}}};
/// Least squares through the figures above, in microseconds per token of context.
constexpr double kPublishedNaiveSlope = 11.32, kPublishedCachedSlope = -0.0256;

constexpr int64_t kPrompt = 3584, kNew = 256;

nn::GPT make_model(const Study& study, int64_t context) {
  configs::ModelConfig model = study.preset("gpt-124m").model;
  model.block_size = std::max(model.block_size, context);  // so that no window sets in
  configs::require_cache_memory(model, model.vocab_size, context, 1,
                                configs::kv_types_of(DType::f32), "the context");
  return nn::GPT(model, model.vocab_size, nn::Scope{.seed = 1});
}

struct Seconds {
  double prompt = 0, rest = 0;  // up to the first new token, and the tokens after it
  double all() const { return prompt + rest; }
};

/// Parts of the progress that take about equally long: passes over the whole sequence. With a cache
/// the prompt is one, and the tokens after it together about another.
constexpr int64_t kCachedParts = 2;
constexpr int64_t kEach = 4;  // of the steps that a quick study times in each of three places
int64_t parts(const Study& study) { return kCachedParts + (study.quick ? 3 * kEach : kNew); }

/// Greedy tokens.
Seconds generate(const nn::GPT& model, bool recompute, const Study& study) {
  infer::GenerateOptions options;
  options.tokens = kNew;
  options.sampling.temperature = 0;
  options.cache.recompute = recompute;
  int64_t done = 0;
  const infer::Sequences prompt = {infer::synthetic_tokens(kPrompt, model.vocab_size(), 1, 0)};
  const infer::GenerateStats stats =
      infer::generate(model, prompt, options, [&](int64_t, int32_t) {
        ++done;
        study.progress(recompute ? kCachedParts + done : kCachedParts * done / kNew, parts(study));
        return true;
      }).stats;
  return {stats.prefill_seconds, stats.decode_seconds};
}

struct Estimate {
  Seconds seconds;
  int64_t timed = 0;
};

/// The first, middle and last four steps without a cache; the others are taken to lie on straight
/// lines between.
Estimate estimate_naive(const nn::GPT& model, const Study& study) {
  std::vector<std::pair<double, double>> groups;  // mean step and its mean milliseconds
  int64_t timed = 0;
  naive_step_ms(model, kPrompt, DType::f32);  // warms up
  double first = 0;
  for (const int64_t begin : {int64_t{0}, kNew / 2 - kEach / 2, kNew - kEach}) {
    double sum = 0;
    for (int64_t step = begin; step < begin + kEach; ++step) {
      const double ms = naive_step_ms(model, kPrompt + step, DType::f32);
      first = step == 0 ? ms : first;
      sum += ms;
      study.progress(kCachedParts + ++timed, parts(study));
    }
    groups.emplace_back(static_cast<double>(begin) + (kEach - 1) / 2.0, sum / kEach);
  }
  double total = 0;
  for (int64_t step = 0; step < kNew; ++step) {
    const auto x = static_cast<double>(step);
    const size_t right = x <= groups[1].first ? 1 : 2;
    const auto [x0, y0] = groups[right - 1];
    const auto [x1, y1] = groups[right];
    total += y0 + (y1 - y0) * (x - x0) / (x1 - x0);
  }
  return {.seconds = {first / 1e3, (total - first) / 1e3}, .timed = timed};
}

}  // namespace

Exhibit latency_exhibit(const Study& study) {
  std::vector<int64_t> contexts(kPublishedSteps.size());
  std::ranges::transform(kPublishedSteps, contexts.begin(), &PublishedStep::context);
  const nn::GPT model = make_model(study, contexts.back() + 1);
  const Latency latency = bench_latency(model, contexts, DType::f32, study.progress);
  Exhibit exhibit;
  exhibit.setting =
      "The 123.6 M model in f32, untrained, the time of the next token: naive is the whole "
      "sequence "
      "again, cached is one token through the cache. Medians of 3 and of 15 after a warm-up.";
  exhibit.table = {{"context", "naive (ms)", "cached (ms)", "naive / cached", "published ratio"}};
  Series naive{.name = "naive"}, cached{.name = "cached"}, naive_gpu{.name = "naive, published"},
      cached_gpu{.name = "cached, published"};
  for (size_t i = 0; i < kPublishedSteps.size(); ++i) {
    const PublishedStep& published = kPublishedSteps[i];
    const LatencyRow& row = latency.rows[i];
    exhibit.rows.push_back({.figure = fmt::format("naive step at context {}", row.context),
                            .published = published.naive_ms,
                            .ours = row.naive_ms,
                            .unit = "ms"});
    exhibit.rows.push_back({.figure = fmt::format("cached step at context {}", row.context),
                            .published = published.cached_ms,
                            .ours = row.cached_ms,
                            .unit = "ms"});
    exhibit.table.push_back({std::to_string(row.context), fmt::format("{:.2f}", row.naive_ms),
                             fmt::format("{:.2f}", row.cached_ms),
                             fmt::format("{:.1f}", row.naive_ms / row.cached_ms),
                             fmt::format("{:.2f}", published.naive_ms / published.cached_ms)});
    const auto x = static_cast<double>(row.context);
    naive.points.emplace_back(x, row.naive_ms);
    cached.points.emplace_back(x, row.cached_ms);
    naive_gpu.points.emplace_back(x, published.naive_ms);
    cached_gpu.points.emplace_back(x, published.cached_ms);
  }
  exhibit.rows.push_back({.figure = "naive slope",
                          .published = kPublishedNaiveSlope,
                          .ours = latency.naive_slope_us_per_token,
                          .unit = "us/token",
                          .note = "least squares through the four steps, published and ours"});
  exhibit.rows.push_back({.figure = "cached slope",
                          .published = kPublishedCachedSlope,
                          .ours = latency.cached_slope_us_per_token,
                          .unit = "us/token",
                          .note = "reading one more token's keys and values"});
  const std::vector<Series> series = {naive, cached, naive_gpu, cached_gpu};
  exhibit.chart = line_chart({.xlabel = "context (tokens)",
                              .ylabel = "next token (ms)",
                              .series = series,
                              .log_x = true,
                              .log_y = true,
                              .xtics = {512, 1024, 2048, 4096}});
  exhibit.legend = legend_of(series);
  exhibit.caption = "Both axes are logarithmic. Published: on a GPU.";
  exhibit.why =
      "The published steps ran on a GPU, where everything up to a few thousand tokens hides behind "
      "the fixed cost of launching a step (some 9.6 ms): its naive step is flat up to 1024. A "
      "processor has no such floor, so the naive step grows from the first token and the cache "
      "pays "
      "at every length.";
  return exhibit;
}

Exhibit end_to_end_exhibit(const Study& study) {
  const nn::GPT model = make_model(study, kPrompt + kNew);
  const Seconds cached = generate(model, false, study);
  const Estimate naive =
      study.quick ? estimate_naive(model, study) : Estimate{generate(model, true, study), kNew};
  const bool estimated = naive.timed < kNew;
  const std::string label =
      estimated ? fmt::format("{} steps timed, total estimated", naive.timed) : "";
  Exhibit exhibit;
  exhibit.setting = fmt::format(
      "The 123.6 M model in f32, untrained: {} greedy tokens after a prompt of {}, from the prompt "
      "to the last token.{}",
      kNew, kPrompt, label.empty() ? "" : " Without a cache: " + label + ".");
  exhibit.rows = {{.figure = "without a cache",
                   .published = 11.5,
                   .ours = naive.seconds.all(),
                   .unit = "s",
                   .note = label},
                  {.figure = "with a cache", .published = 2.9, .ours = cached.all(), .unit = "s"},
                  {.figure = "speed-up",
                   .published = 11.5 / 2.9,
                   .ours = naive.seconds.all() / cached.all(),
                   .unit = "times",
                   .note = label},
                  {.figure = "of the cached time, the prompt",
                   .ours = 100 * cached.prompt / cached.all(),
                   .unit = "%"}};
  exhibit.table = {{"", "prompt (s)", fmt::format("{} more tokens (s)", kNew - 1), "all (s)"}};
  const auto add = [&](const char* name, const Seconds& seconds) {
    exhibit.table.push_back({name, fmt::format("{:.2f}", seconds.prompt),
                             fmt::format("{:.2f}", seconds.rest),
                             fmt::format("{:.2f}", seconds.all())});
  };
  add("without a cache", naive.seconds);
  add("with a cache", cached);
  exhibit.chart = bar_chart(
      {.ylabel = "seconds",
       .groups = {"without a cache", "with a cache"},
       .series = {{.name = "seconds", .points = {{0, naive.seconds.all()}, {1, cached.all()}}}},
       .log_y = true});
  exhibit.caption = "On a logarithmic axis.";
  exhibit.why =
      "The published 4 times were bounded by a GPU's fixed cost per step. A processor does the "
      "repeated work at full price, so dropping it gains more, and the prompt, which no cache "
      "shortens, is a larger part of what is left.";
  return exhibit;
}

}  // namespace headroom::experiments
