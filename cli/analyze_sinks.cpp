// headroom analyze sinks: how much attention goes to the first token, and to learned sinks.
#include <CLI/App.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/analyze.h"
#include "cli/work_progress.h"

namespace headroom::cli {
namespace {

nlohmann::ordered_json to_json(const experiments::SinkMass& mass,
                               const experiments::Passages& passages) {
  nlohmann::ordered_json layers = nlohmann::ordered_json::array();
  for (size_t layer = 0; layer < mass.first.size(); ++layer) {
    layers.push_back(
        {{"layer", layer}, {"uniform", mass.uniform[layer]}, {"token_0", mass.first[layer]}});
    if (!mass.learned.empty()) {
      layers.back()["learned_sink"] = mass.learned[layer];
    }
  }
  return {{"layers", layers}, {"context", passages.tokens}, {"passages", passages.count()}};
}

int run_analyze_sinks(const AnalyzeOptions& options, const Common& common) {
  const experiments::TrainedModel trained = load_for_analysis(options, common);
  experiments::SinkMass mass;
  {
    WorkProgress progress(common, "analyze sinks");
    mass =
        experiments::sink_mass(trained.model(), trained.held_out,
                               [&progress](int64_t done, int64_t all) { progress.at(done, all); });
  }
  const nlohmann::ordered_json json = to_json(mass, trained.held_out);
  if (mass.learned.empty()) {
    show(options, common, "Attention mass on token 0", experiments::show_sink_mass(trained, mass),
         json);
  } else {
    show(options, common, "Attention mass on the learned sinks",
         experiments::show_learned_sink(trained, mass), json);
  }
  return 0;
}

}  // namespace

Action add_analyze_sinks(CLI::App& app, Common& common) {
  const auto options = std::make_shared<AnalyzeOptions>();
  add_analyze_options(app, *options);
  set_footer(app,
             "  headroom analyze sinks runs/first\n"
             "  headroom analyze sinks runs/first --plot sinks.svg --json\n\n"
             "Mean over the queries at positions 1 and on of exp(score - log-sum-exp) of the key\n"
             "at position 0, beside what attention spread evenly would give. A model with learned\n"
             "sinks (model.sink) shows the mass on those, and both with --json.");
  return [options, &common] { return run_analyze_sinks(*options, common); };
}

}  // namespace headroom::cli
