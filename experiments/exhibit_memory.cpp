// Exhibits memory-bill and fused-view: what is really held, read from the allocator.
#include <fmt/format.h>

#include <array>

#include "configs/size.h"
#include "experiments/exhibits.h"
#include "experiments/format.h"
#include "experiments/line_chart.h"
#include "experiments/memory_bill.h"

namespace headroom::experiments {
namespace {

constexpr double kMiB = 1024 * 1024;

double mib(int64_t bytes) { return static_cast<double>(bytes) / kMiB; }

}  // namespace

Exhibit memory_bill_exhibit(const Study& study) {
  static constexpr std::array kPublished = {72.0, 144.0, 288.0};
  const configs::ModelConfig m = study.preset("gpt-124m").model;
  const nn::GPT model(m, m.vocab_size, nn::Scope{.seed = 1});
  const std::vector<MemoryBill> bills =
      bench_memory(model, {1024, 2048, 4096}, DType::f32, study.progress);
  Exhibit exhibit;
  exhibit.setting =
      "The 123.6 M model in f32, untrained: the allocator's bytes in use before there is a cache, "
      "and "
      "after a prompt has gone through it. headroom bench memory does the same for any model.";
  exhibit.table = {{"context", "allocated (bytes)", "formula (bytes)", "difference"}};
  Series allocated{.name = "allocated"}, formula{.name = "formula"};
  for (size_t i = 0; i < bills.size(); ++i) {
    const MemoryBill& bill = bills[i];
    const int64_t over = bill.allocated_bytes - bill.formula_bytes;
    exhibit.rows.push_back(
        {.figure = fmt::format("cache of {} tokens", bill.context),
         .published = kPublished.at(i),
         .ours = mib(bill.allocated_bytes),
         .unit = "MiB",
         .note = over == 0 ? "the formula's bytes exactly"
                           : fmt::format("{} bytes beside the formula's", format_count(over))});
    exhibit.table.push_back({std::to_string(bill.context), format_count(bill.allocated_bytes),
                             format_count(bill.formula_bytes), format_count(over)});
    const auto x = static_cast<double>(bill.context);
    allocated.points.emplace_back(x, mib(bill.allocated_bytes));
    formula.points.emplace_back(x, mib(bill.formula_bytes));
  }
  const auto growth =
      static_cast<double>(bills.back().allocated_bytes - bills.front().allocated_bytes);
  exhibit.rows.push_back(
      {.figure = "growth per token",
       .published = 72,
       .ours = growth / 1024 / static_cast<double>(bills.back().context - bills.front().context),
       .unit = "KiB"});
  exhibit.chart = line_chart({.xlabel = "tokens in the cache",
                              .ylabel = "memory (MiB)",
                              .series = {allocated, formula},
                              .y_from_zero = true,
                              .xtics = {1024, 2048, 4096}});
  exhibit.legend = {"allocated", "formula"};
  exhibit.caption = "The two lines lie on one another.";
  exhibit.why =
      "Nothing: the cache is allocated once, at its final size, and is never grown by copying, so "
      "no "
      "second copy is ever alive.";
  return exhibit;
}

Exhibit fused_view_exhibit(const Study& study) {
  constexpr int64_t kTokens = 1024;
  const configs::ModelConfig base = study.preset("gpt-124m").model;
  Exhibit exhibit;
  exhibit.setting = fmt::format(
      "One projection makes q, k and v of {} tokens in each of {} layers, in f32. A view of its "
      "output keeps all of the output alive, q included; a copy of k and v lets it go. Both are "
      "read "
      "from the allocator.",
      kTokens, base.n_layer);
  exhibit.table = {{"KV heads", "views (MiB)", "copies (MiB)", "formula (MiB)", "views / formula"}};
  Series views{.name = "views"}, copies{.name = "copies"};
  BarChart chart{.xlabel = "KV heads", .ylabel = "held (MiB)"};
  const std::vector<int64_t> heads = {base.n_head, base.n_head / 3, 1};
  for (size_t i = 0; i < heads.size(); ++i) {
    study.progress(static_cast<int64_t>(i), std::ssize(heads));
    configs::ModelConfig m = base;
    m.given_head_dim = base.head_dim();
    m.n_kv_head = heads[i];
    const FusedView held = hold_fused_projection(m, kTokens);
    const double times =
        static_cast<double>(held.view_bytes) / static_cast<double>(held.formula_bytes);
    if (i == 0) {
      exhibit.rows = {
          {.figure = "views held, over the formula",
           .published = 2,
           .ours = times,
           .unit = "times",
           .note = "q, k and v alive for the sake of k and v: 3C / 2C"},
          {.figure = "copies held, over the formula",
           .ours = static_cast<double>(held.copy_bytes) / static_cast<double>(held.formula_bytes),
           .unit = "times"}};
    } else {
      exhibit.rows.push_back({.figure = fmt::format("views held, over the formula, {} KV head{}",
                                                    heads[i], heads[i] == 1 ? "" : "s"),
                              .ours = times,
                              .unit = "times",
                              .note = "the fewer KV heads, the more of what is kept is q"});
    }
    exhibit.table.push_back({std::to_string(heads[i]), fmt::format("{:.1f}", mib(held.view_bytes)),
                             fmt::format("{:.1f}", mib(held.copy_bytes)),
                             fmt::format("{:.1f}", mib(held.formula_bytes)),
                             fmt::format("{:.2f}", times)});
    chart.groups.push_back(std::to_string(heads[i]));
    views.points.emplace_back(i, mib(held.view_bytes));
    copies.points.emplace_back(i, mib(held.copy_bytes));
  }
  chart.series = {views, copies};
  exhibit.chart = bar_chart(chart);
  exhibit.legend = legend_of(chart.series);
  exhibit.caption = "What a cache of views holds, and one of copies.";
  exhibit.why =
      "Views of a (tokens, 3C) output hold half as much again as their keys and values, by "
      "arithmetic "
      "and by the allocator. Twice the formula is what the published run held; the rest of it is "
      "not "
      "the views' (a cache grown by concatenation holds its old and its new tensor at once, for "
      "one). "
      "This project's cache copies into its own slots.";
  return exhibit;
}

}  // namespace headroom::experiments
