// sink-mass and learned-sink: heat maps of where attention looks when nothing draws it.
#include <fmt/format.h>

#include <filesystem>

#include "configs/load.h"
#include "experiments/exhibits.h"
#include "experiments/heat_map.h"
#include "experiments/quality_exhibits.h"
#include "experiments/results_file.h"
#include "experiments/run_once.h"

namespace headroom::experiments {
namespace {

/// Of GPT-2's heads, smallest and largest.
constexpr double kPublishedLow = 0.00, kPublishedHigh = 0.57;

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) {
    sum += value;
  }
  return sum / static_cast<double>(values.size());
}

std::vector<std::vector<std::string>> table_of(const HeadMap& map,
                                               const std::vector<double>& uniform) {
  std::vector<std::vector<std::string>> table = {{"layer"}};
  for (size_t head = 0; head < map.front().size(); ++head) {
    table[0].push_back(fmt::format("head {}", head));
  }
  table[0].insert(table[0].end(), {"mean", "uniform"});
  for (size_t layer = 0; layer < map.size(); ++layer) {
    table.push_back({fmt::format("{}", layer)});
    for (const double value : map[layer]) {
      table.back().push_back(fmt::format("{:.3f}", value));
    }
    table.back().push_back(fmt::format("{:.3f}", mean_of(map[layer])));
    table.back().push_back(fmt::format("{:.3f}", uniform[layer]));
  }
  return table;
}

ExhibitRow share(const std::string& figure, double ours, std::optional<double> published = {},
                 const std::string& note = "") {
  return exhibit_row(figure, published, ours, "", note);
}

/// What was found, against the baseline.
std::string found(const Spread& heads, double uniform) {
  return heads.high > 2 * uniform
             ? fmt::format(
                   " In ours too some heads rest on token 0: up to {:.3f} of their mass, "
                   "where attention spread evenly gives {:.3f}.",
                   heads.high, uniform)
             : fmt::format(
                   " In ours no head rests on token 0: the most is {:.3f}, where attention "
                   "spread evenly gives {:.3f}. Sinks are reported of larger models that "
                   "were trained for longer (arXiv 2309.17453).",
                   heads.high, uniform);
}

/// The sweep's multi-head model with learned sinks. A quick study has no time for a larger one than
/// the small preset's, and takes that, for half its steps and on the sweep's text.
configs::Config config_with_sinks(const Study& study, const Sweep& sweep) {
  std::vector<std::string> notes;
  configs::Config config =
      configs::parse_config(sweep.config_yaml, (study.sweep / "results.json").string(), {}, &notes);
  if (configs::Config small = study.preset("gqa-quick");
      study.quick && config.model.n_embd > small.model.n_embd) {
    small.data = config.data;
    small.train.steps /= 2;
    config = small;
  }
  config.model.n_kv_head = config.model.n_head;
  config.model.sink = configs::SinkKind::learned;
  return config;
}

/// The sweep's own model with learned sinks, or one trained for this exhibit.
TrainedModel model_with_learned_sinks(const Study& study) {
  const Sweep sweep = read_results(study.sweep);
  for (const Row& each : sweep.rows) {
    if (each.name == "learned-sink" && !each.runs.empty()) {
      return load_member(study, each.name, each.runs.front().seed);
    }
  }
  const configs::Config config = config_with_sinks(study, sweep);
  const std::filesystem::path run = study.folder / "learned-sink";
  train_once(config, run, study);
  return load_trained_model(
      run, {.overrides = {}, .corpus = {}, .passages = study.quick ? 16 : 64, .device = kCpu});
}

}  // namespace

Exhibit show_sink_mass(const TrainedModel& trained, const SinkMass& mass) {
  const Spread heads = spread_of(mass.first);
  Exhibit exhibit;
  exhibit.setting = setting_of(trained) +
                    " Mean over the queries at positions 1 and on of exp(score - log-sum-exp) of "
                    "the key at position 0.";
  exhibit.rows = {
      share("share on token 0, head with the least", heads.low, kPublishedLow, kOnGpt2),
      share("share on token 0, head with the most", heads.high, kPublishedHigh, kOnGpt2),
      share("share on token 0, mean of all heads", heads.mean),
      share("share of each key if attention were even", mean_of(mass.uniform), {},
            "the baseline: mean over the same queries of 1 / keys seen")};
  exhibit.table = table_of(mass.first, mass.uniform);
  exhibit.chart = heat_map(mass.first, "mass on token 0");
  exhibit.caption = fmt::format(
      "Attention mass on token 0 by layer and head. Attention spread evenly would give {:.3f} "
      "everywhere.",
      mean_of(mass.uniform));
  exhibit.why = model_differs(trained) + found(heads, mean_of(mass.uniform));
  return exhibit;
}

Exhibit show_learned_sink(const TrainedModel& trained, const SinkMass& mass) {
  const Spread learned = spread_of(mass.learned), first = spread_of(mass.first);
  Exhibit exhibit;
  exhibit.setting = setting_of(trained) +
                    " Trained with one more logit per head in its softmax, without a value "
                    "(sink: learned, as in gpt-oss); its mass is exp(logit - log-sum-exp).";
  exhibit.rows = {share("share on the learned sink, head with the least", learned.low),
                  share("share on the learned sink, head with the most", learned.high),
                  share("share on the learned sink, mean of all heads", learned.mean),
                  share("share on token 0, mean of all heads", first.mean),
                  share("share on token 0, head with the most", first.high, kPublishedHigh,
                        "the model differs: published on GPT-2, which has no learned sinks"),
                  share("share of each key if attention were even", mean_of(mass.uniform))};
  exhibit.table = table_of(mass.learned, mass.uniform);
  exhibit.chart = heat_map(mass.learned, "mass on the learned sink");
  exhibit.caption = "Attention mass on the learned sink logit by layer and head.";
  const double even = mean_of(mass.uniform);
  exhibit.why =
      model_differs(trained) +
      fmt::format(
          " Where a head may leave its mass on a logit of its own, token 0 need not take "
          "it. In ours the head that uses its logit most leaves {:.3f} there, {} the "
          "{:.3f} that even attention gives a key.",
          learned.high, learned.high > 2 * even ? "more than" : "no more than about", even);
  return exhibit;
}

Exhibit sink_mass_exhibit(const Study& study) {
  const TrainedModel trained = load_reference(study);
  return show_sink_mass(trained, sink_mass(trained.model(), trained.held_out, study.progress));
}

Exhibit learned_sink_exhibit(const Study& study) {
  const TrainedModel trained = model_with_learned_sinks(study);
  return show_learned_sink(trained, sink_mass(trained.model(), trained.held_out, study.progress));
}

}  // namespace headroom::experiments
