// Options, loading and printing of the `analyze` commands.
#include "cli/analyze.h"

#include <CLI/App.hpp>
#include <nlohmann/json.hpp>

#include "cli/table.h"
#include "experiments/gnuplot.h"
#include "tensor/file.h"

namespace headroom::cli {
namespace {

std::string figure(const std::optional<double>& value) {
  return value ? fmt::format("{:.4g}", *value) : "-";
}

std::string to_text(const std::string& title, const experiments::Exhibit& exhibit) {
  std::vector<Row> rows = {{"figure", "published", "ours", "unit"}};
  for (const experiments::ExhibitRow& row : exhibit.rows) {
    rows.push_back({row.figure, figure(row.published), figure(row.ours), row.unit});
  }
  std::vector<Row> table(exhibit.table.begin(), exhibit.table.end());
  return fmt::format("{}\n{}\n\n{}\n{}\n{}\n", title, exhibit.setting, aligned(table, 1, 2),
                     aligned(rows, 1, 2), exhibit.why);
}

nlohmann::ordered_json number(const std::optional<double>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

void write_plot(const std::string& path, const std::string& script) {
  const std::string svg = experiments::draw(script, "analyze");
  write_file(path, "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n" + svg + "\n");
}

}  // namespace

void add_analyze_options(CLI::App& app, AnalyzeOptions& options) {
  constexpr int64_t kMost = 1'000'000'000;
  app.add_option("RUN", options.run, "a run folder (its best checkpoint) or a checkpoint in one")
      ->required();
  app.add_option("--corpus", options.corpus, "text to read, divided as the run's was")
      ->type_name("FILE")
      ->default_str("the run's data.corpus");
  add_whole(app, "--passages", options.passages, 1, kMost, "passages of held-out text, at most");
  add_whole(app, "--context", options.context, 2, kMost, "tokens of a passage", "model.block_size");
  app.add_option("--plot", options.plot, "write the picture there as SVG")->type_name("FILE");
}

experiments::TrainedModel load_for_analysis(const AnalyzeOptions& options, const Common& common) {
  experiments::TrainedModel trained =
      experiments::load_trained_model(options.run, {.overrides = common.overrides,
                                                    .corpus = options.corpus,
                                                    .passages = options.passages,
                                                    .context = options.context,
                                                    .device = common.device});
  for (const std::string& each : trained.notes) {
    note(common, each);
  }
  use_configured_threads(common, trained.run.config.train.threads);
  return trained;
}

void show(const AnalyzeOptions& options, const Common& common, const std::string& title,
          const experiments::Exhibit& exhibit, nlohmann::ordered_json json) {
  if (!options.plot.empty()) {
    write_plot(options.plot, exhibit.chart);
  }
  if (!common.json) {
    print(to_text(title, exhibit));
    return;
  }
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const experiments::ExhibitRow& row : exhibit.rows) {
    rows.push_back({{"figure", row.figure},
                    {"published", number(row.published)},
                    {"ours", number(row.ours)},
                    {"unit", row.unit},
                    {"note", row.note}});
  }
  json["published"] = rows;
  json["setting"] = exhibit.setting;
  json["why"] = exhibit.why;
  print_json(json);
}

}  // namespace headroom::cli
