// Exhibit flop-100: what 100 tokens cost with and without a cache, on GPT-2's shape, by formula and
// counted in a run.
#include <fmt/format.h>

#include "configs/memory.h"
#include "configs/size.h"
#include "experiments/counted_work.h"
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

/// FLOP of all matrices and of attention, for passes over sequences of 1, 2, ... tokens.
struct WholeModel {
  double naive = 0, cached = 0;
};

WholeModel whole_model(const configs::ModelConfig& m, int64_t tokens) {
  WholeModel all;
  for (int64_t seen = 1; seen <= tokens; ++seen) {
    all.naive += static_cast<double>(configs::prefill_flop(m, m.vocab_size, seen));
    all.cached += static_cast<double>(configs::decode_flop(m, m.vocab_size, seen));
  }
  return all;
}

std::string chart(const configs::ModelConfig& m, int64_t all) {
  Series naive{.name = "without a cache"}, cached{.name = "with a cache"};
  for (int64_t tokens = 1; tokens <= all; tokens += tokens == 1 ? 9 : 10) {
    const auto x = static_cast<double>(tokens);
    naive.points.emplace_back(x, projection(m, tokens * (tokens + 1) / 2) / 1e9);
    cached.points.emplace_back(x, projection(m, tokens) / 1e9);
  }
  return line_chart({.xlabel = "tokens generated",
                     .ylabel = "multiply-adds so far (billions)",
                     .series = {naive, cached},
                     .y_from_zero = true});
}

std::vector<std::string> counted_line(const char* name, const infer::GenerateStats& stats,
                                      double formula) {
  return {name,
          format_count(stats.work.rows),
          fmt::format("{:.4g}", static_cast<double>(stats.work.flop)),
          fmt::format("{:.4g}", formula),
          format_count(stats.work.logit_rows),
          format_count(stats.logit_rows_used),
          format_count(stats.work.cache_bytes_read)};
}

}  // namespace

Exhibit show_work(const configs::ModelConfig& m, int64_t tokens, const CountedWork& counted) {
  const int64_t naive_rows = tokens * (tokens + 1) / 2;
  const double naive = projection(m, naive_rows), cached = projection(m, tokens);
  const WholeModel all = whole_model(m, tokens);
  const auto parameters = static_cast<double>(configs::parameter_count(m, m.vocab_size));
  const auto cache_mb = [&](DType type) {
    return static_cast<double>(configs::cache_bytes(m, tokens, 1, configs::kv_types_of(type))) /
           1e6;
  };
  Exhibit exhibit;
  exhibit.setting = fmt::format(
      "GPT-2's shape, {} tokens from the first on. One projection is a {} x {} matrix in each of "
      "{} layers; a FLOP is a multiplication or an addition, so a multiply-add is two. The counted "
      "figures are of a run with random weights, the cache in f32: what generate --stats prints.",
      tokens, m.n_embd, m.n_embd, m.n_layer);
  exhibit.rows = {
      exhibit_row("one projection without a cache", 3.57e10, naive, "multiply-adds",
                  fmt::format("1 + 2 + ... + {} = {} rows", tokens, format_count(naive_rows))),
      exhibit_row("one projection with a cache", 7.08e8, cached, "multiply-adds",
                  fmt::format("{} rows", tokens)),
      exhibit_row("ratio, (L + 1) / 2", 50.5, naive / cached, "times"),
      exhibit_row("one projection without a cache", {}, 2 * naive, "FLOP"),
      exhibit_row("one projection with a cache", {}, 2 * cached, "FLOP"),
      exhibit_row("counted: one projection without a cache", 3.57e10,
                  projection(m, counted.naive.work.rows), "multiply-adds",
                  "by the rows that went through the layers"),
      exhibit_row("counted: one projection with a cache", 7.08e8,
                  projection(m, counted.cached.work.rows), "multiply-adds", "likewise"),
      exhibit_row("counted: whole model without a cache", {},
                  static_cast<double>(counted.naive.work.flop), "FLOP",
                  fmt::format("all matrices and attention; by formula {:.4g}", all.naive)),
      exhibit_row("counted: whole model with a cache", {},
                  static_cast<double>(counted.cached.work.flop), "FLOP",
                  fmt::format("by formula {:.4g}", all.cached)),
      exhibit_row("counted: logits computed", {},
                  static_cast<double>(counted.cached.work.logit_rows), "rows",
                  fmt::format("{} of them used; {} of {} without a cache",
                              format_count(counted.cached.logit_rows_used),
                              format_count(counted.naive.logit_rows_used),
                              format_count(counted.naive.work.logit_rows))),
      exhibit_row(
          "counted: cache read, all steps together", {},
          static_cast<double>(counted.cached.work.cache_bytes_read), "bytes",
          fmt::format("f32; grows as the square of the tokens: {} for each of {} rows",
                      format_bytes(configs::cache_bytes(m, 1, 1, configs::kv_types_of(DType::f32))),
                      format_count(naive_rows))),
      exhibit_row(fmt::format("cache of {} tokens, fp16", tokens), 3.69, cache_mb(DType::f16),
                  "MB"),
      exhibit_row("weights, fp16", 249, 2 * parameters / 1e6, "MB"),
      exhibit_row("weights, fp32", 498, 4 * parameters / 1e6, "MB")};
  exhibit.table = {{"counted", "rows in the layers", "FLOP", "FLOP by formula", "logit rows",
                    "of them used", "cache bytes read"},
                   counted_line("without a cache", counted.naive, all.naive),
                   counted_line("with a cache", counted.cached, all.cached)};
  exhibit.chart = chart(m, tokens);
  exhibit.legend = {"without a cache", "with a cache"};
  exhibit.caption = "Multiply-adds of one projection, all layers together.";
  exhibit.why =
      "Rounding. The ratio of the whole model is lower than one projection's: the logits' matrix, "
      "needed once per token either way, is a third of the work of a cached token.";
  return exhibit;
}

Exhibit flop_100_exhibit(const Study& study) {
  const configs::ModelConfig m = study.preset("gpt2").model;
  configs::require_cache_memory(m, m.vocab_size, kTokens, 1, configs::kv_types_of(DType::f32),
                                "the run that is counted");
  study.progress(0, 1);
  const nn::GPT model(m, m.vocab_size, nn::Scope{.seed = 1});
  int64_t done = 0;
  return show_work(m, kTokens,
                   count_work(model, kTokens, [&] { study.progress(++done, 2 * kTokens); }));
}

}  // namespace headroom::experiments
