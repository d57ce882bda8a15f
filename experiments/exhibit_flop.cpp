// Exhibit flop-100: what 100 tokens cost with and without a cache, on GPT-2's shape.
#include <fmt/format.h>

#include "configs/size.h"
#include "experiments/exhibits.h"
#include "experiments/format.h"
#include "experiments/line_chart.h"

namespace headroom::experiments {
namespace {

constexpr int64_t kTokens = 100;

/// Multiply-adds of one square projection in every layer, for `rows` rows.
double projection(const configs::ModelConfig& m, int64_t rows) {
  return static_cast<double>(m.n_layer * m.n_embd * m.n_embd * rows);
}

/// FLOP of all matrices and of attention, for the kTokens passes over sequences of 1, 2, ...
/// tokens.
struct WholeModel {
  double naive = 0, cached = 0;
};

WholeModel whole_model(const configs::ModelConfig& m) {
  WholeModel all;
  for (int64_t tokens = 1; tokens <= kTokens; ++tokens) {
    all.naive += static_cast<double>(configs::prefill_flop(m, m.vocab_size, tokens));
    all.cached += static_cast<double>(configs::decode_flop(m, m.vocab_size, tokens));
  }
  return all;
}

std::string chart(const configs::ModelConfig& m) {
  Series naive{.name = "without a cache"}, cached{.name = "with a cache"};
  for (int64_t tokens = 1; tokens <= kTokens; tokens += tokens == 1 ? 9 : 10) {
    const auto x = static_cast<double>(tokens);
    naive.points.emplace_back(x, projection(m, tokens * (tokens + 1) / 2) / 1e9);
    cached.points.emplace_back(x, projection(m, tokens) / 1e9);
  }
  return line_chart({.xlabel = "tokens generated",
                     .ylabel = "multiply-adds so far (billions)",
                     .series = {naive, cached},
                     .y_from_zero = true});
}

}  // namespace

Exhibit flop_100_exhibit(const Study& study) {
  const configs::ModelConfig m = study.preset("gpt2").model;
  const double naive = projection(m, kTokens * (kTokens + 1) / 2), cached = projection(m, kTokens);
  const WholeModel all = whole_model(m);
  const auto parameters = static_cast<double>(configs::parameter_count(m, m.vocab_size));
  Exhibit exhibit;
  exhibit.setting = fmt::format(
      "GPT-2's shape, {} tokens from the first on. One projection is a {} x {} matrix in each of "
      "{} "
      "layers; a FLOP is a multiplication or an addition, so a multiply-add is two.",
      kTokens, m.n_embd, m.n_embd, m.n_layer);
  exhibit.rows = {
      {.figure = "one projection without a cache",
       .published = 3.57e10,
       .ours = naive,
       .unit = "multiply-adds",
       .note = "1 + 2 + ... + 100 = 5,050 rows"},
      {.figure = "one projection with a cache",
       .published = 7.08e8,
       .ours = cached,
       .unit = "multiply-adds",
       .note = "100 rows"},
      {.figure = "ratio, (L + 1) / 2", .published = 50.5, .ours = naive / cached, .unit = "times"},
      {.figure = "one projection without a cache", .ours = 2 * naive, .unit = "FLOP"},
      {.figure = "one projection with a cache", .ours = 2 * cached, .unit = "FLOP"},
      {.figure = "whole model without a cache",
       .ours = all.naive,
       .unit = "FLOP",
       .note = "all matrices and attention; logits of each pass's last row only"},
      {.figure = "whole model with a cache", .ours = all.cached, .unit = "FLOP"},
      {.figure = "cache of 100 tokens, fp16",
       .published = 3.69,
       .ours = static_cast<double>(
                   configs::cache_bytes(m, kTokens, 1, configs::kv_types_of(DType::f16))) /
               1e6,
       .unit = "MB"},
      {.figure = "weights, fp16", .published = 249, .ours = 2 * parameters / 1e6, .unit = "MB"},
      {.figure = "weights, fp32", .published = 498, .ours = 4 * parameters / 1e6, .unit = "MB"}};
  exhibit.chart = chart(m);
  exhibit.legend = {"without a cache", "with a cache"};
  exhibit.caption = "Multiply-adds of one projection, all layers together.";
  exhibit.why =
      "Rounding. The ratio of the whole model is lower than one projection's: the logits' matrix, "
      "needed once per token either way, is a third of the work of a cached token.";
  return exhibit;
}

}  // namespace headroom::experiments
