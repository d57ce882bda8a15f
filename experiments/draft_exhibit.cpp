// draft: members of the sweep guess for its multi-head model.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "configs/load.h"
#include "experiments/drafting.h"
#include "experiments/exhibits.h"
#include "experiments/format.h"
#include "experiments/line_chart.h"
#include "experiments/quality_exhibits.h"
#include "experiments/results_file.h"
#include "experiments/run_once.h"

namespace headroom::experiments {
namespace {

constexpr int64_t kGuesses = 4;
constexpr std::array kTemperatures = {0.0, 1.0};
/// Published speed-ups, lowest and highest (arXiv 2211.17192, abstract).
constexpr double kT5SpeedUpLow = 2, kT5SpeedUpHigh = 3;
constexpr const char* kOnT5 = "the model differs: published on T5-XXL (11 B parameters)";

/// A trained draft and what the exhibit calls it.
struct Draft {
  std::string name;
  std::filesystem::path run;
};

/// The finished runs with fewer KV heads than the model that is helped, of its seed.
std::vector<Draft> members(const Study& study, const Sweep& sweep, const Row& helped) {
  const uint64_t seed = helped.runs.front().seed;
  std::vector<Draft> drafts;
  for (const Row& row : sweep.rows) {
    const bool same_seed =
        std::ranges::any_of(row.runs, [seed](const SeedRun& run) { return run.seed == seed; });
    if (differs_in_heads(row) && row.name != helped.name && same_seed) {
      drafts.push_back({title_of(row), study.sweep / fmt::format("{}-seed{}", row.name, seed)});
    }
  }
  return drafts;
}

/// One layer and one KV head, the sweep's recipe: a draft that costs little. A quick study trains
/// it for half the steps.
Draft one_layer(const Study& study, const Sweep& sweep) {
  std::vector<std::string> notes;
  configs::Config config =
      configs::parse_config(sweep.config_yaml, (study.sweep / "results.json").string(), {}, &notes);
  config.model.given_head_dim = config.model.head_dim();
  config.model.n_layer = config.model.n_kv_head = 1;
  if (study.quick) config.train.steps = std::max<int64_t>(1, config.train.steps / 2);
  config.train.warmup_steps = std::min(config.train.warmup_steps, config.train.steps);
  Draft draft{"one layer", study.folder / "draft-one-layer"};
  train_once(config, draft.run, study);
  return draft;
}

std::string choosing(double temperature) {
  return temperature == 0 ? "greedy" : fmt::format("temperature {:g}", temperature);
}

void add_rows(Exhibit& exhibit, const DraftResult& result) {
  const Drafting& d = result.drafting;
  const std::string which = fmt::format("{}, {}", result.draft, choosing(result.temperature));
  exhibit.rows.push_back(exhibit_row(which + ": guesses accepted", {}, 100 * d.acceptance(), "%"));
  exhibit.rows.push_back(
      {.figure = which + ": speed-up",
       .published = kT5SpeedUpLow,
       .published_to = kT5SpeedUpHigh,
       .ours = d.speed_up(),
       .unit = "times",
       .note =
           fmt::format("{}{}", kOnT5, d.speed_up() < 1 ? "; below 1: this draft costs time" : "")});
  exhibit.table.push_back(
      {result.draft, choosing(result.temperature), fmt::format("{:.1f} %", 100 * d.acceptance()),
       fmt::format("{:.2f}", d.tokens_per_pass()), fmt::format("{:.2f}", d.cost()),
       fmt::format("{:.2f}", d.speed_up()), fmt::format("{:.2f}", d.expected_speed_up(kGuesses))});
}

void add_bar(BarChart& chart, const DraftResult& result) {
  const std::string prefix = "n_kv_head ";  // stands under the axis; the words must be short
  const std::string bar =
      result.draft.starts_with(prefix) ? result.draft.substr(prefix.size()) : result.draft;
  if (chart.groups.empty() || chart.groups.back() != bar) chart.groups.push_back(bar);
  const std::string how = choosing(result.temperature);
  auto series = std::ranges::find(chart.series, how, &Series::name);
  if (series == chart.series.end()) {
    series = chart.series.insert(chart.series.end(), {.name = how, .points = {}});
  }
  series->points.emplace_back(static_cast<double>(chart.groups.size() - 1),
                              result.drafting.speed_up());
}

/// What the fastest draft came to, and why.
std::string verdict(const std::vector<DraftResult>& results) {
  const DraftResult& best = *std::ranges::max_element(
      results, {}, [](const DraftResult& each) { return each.drafting.speed_up(); });
  const Drafting& d = best.drafting;
  return fmt::format(
      " A draft pays when {} guesses and one pass that judges them cost less than the tokens they "
      "bring. The best here is {} ({}): {:.2f} tokens per pass, {:.2f} passes of the model for a "
      "guess, {:.2f} times as fast, so {}. ",
      kGuesses, best.draft, choosing(best.temperature), d.tokens_per_pass(), d.cost(), d.speed_up(),
      d.speed_up() < 1 ? "no draft here is worth its time" : "it pays");
}

}  // namespace

Exhibit show_draft(const TrainedModel& helped, const std::vector<DraftResult>& results) {
  Exhibit exhibit;
  const int64_t tokens = results.front().drafting.tokens;
  exhibit.setting =
      setting_of(helped) +
      fmt::format(
          " It is helped by a draft that guesses {} tokens at a time, one prompt at a "
          "time: {} tokens in all, made without the draft, with it, and by it alone. Times are "
          "medians over the prompts.",
          kGuesses, tokens);
  exhibit.table = {{"draft", "choosing", "guesses accepted", "tokens/pass", "cost of a guess",
                    "speed-up", "by formula"}};
  BarChart chart{.xlabel = "draft, by its n_kv_head",
                 .ylabel = "speed-up (times)",
                 .groups = {},
                 .series = {}};
  int64_t greedy = 0, unlike = 0;
  for (const DraftResult& each : results) {
    add_rows(exhibit, each);
    add_bar(chart, each);
    if (each.temperature == 0) {
      greedy += each.drafting.tokens;
      unlike += each.drafting.unlike;
    }
  }
  exhibit.rows.push_back(exhibit_row(
      "greedy tokens unlike those made without a draft", 0, static_cast<double>(unlike), "",
      fmt::format("of {}; only logits as close as rounding may differ", format_count(greedy))));
  exhibit.chart = bar_chart(chart);
  exhibit.legend = legend_of(chart.series);
  exhibit.caption =
      "How many times as fast text is made with a draft. Below 1 the draft costs time.";
  exhibit.why =
      std::string(
          "The model differs: the published 2 to 3 times are of T5-XXL, whose drafts are a "
          "hundredth of its size.") +
      verdict(results) +
      "Members of one sweep have one depth, so their guesses cost nearly a pass each; the model of "
      "one layer was trained for this exhibit, by the sweep's recipe, with one KV head. The "
      "formula "
      "(tokens per pass over guesses * cost + 1) takes judging five tokens to cost what one does, "
      "which holds where a pass waits for its weights; a model that fits into a processor's cache "
      "pays for each.";
  return exhibit;
}

Exhibit draft_exhibit(const Study& study) {
  const Sweep sweep = read_results(study.sweep);
  const TrainedModel helped = load_reference(study);
  const std::optional<size_t> reference = summarize(sweep).reference;
  check(reference.has_value(), "[draft] {}: the sweep has no multi-head run to help",
        study.sweep.string());
  std::vector<Draft> drafts = members(study, sweep, sweep.rows[*reference]);
  drafts.push_back(one_layer(study, sweep));

  infer::GenerateOptions options;
  options.tokens = helped.held_out.tokens / 2;
  options.draft_tokens = kGuesses;
  options.vocabulary = helped.run.tokenizer->vocab_size();
  infer::Sequences prompts = helped.held_out.ids;
  prompts.resize(std::min<size_t>(prompts.size(), study.quick ? 8 : 16));
  for (auto& prompt : prompts) prompt.resize(static_cast<size_t>(helped.held_out.tokens / 4));

  std::vector<DraftResult> results;
  const auto parts = static_cast<int64_t>(prompts.size() * drafts.size() * kTemperatures.size());
  int64_t done = 0;
  for (const Draft& draft : drafts) {
    const train::LoadedRun loaded = train::load_run(draft.run, {}, kCpu);
    for (const double temperature : kTemperatures) {
      options.sampling.temperature = temperature;
      results.push_back({draft.name, temperature,
                         measure_drafting(helped.model(), *loaded.model, prompts, options,
                                          [&] { study.progress(++done, parts); })});
    }
  }
  return show_draft(helped, results);
}

}  // namespace headroom::experiments
