// headroom analyze window: what a window costs, and what a few sinks give back.
#include <CLI/App.hpp>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/analyze.h"
#include "cli/number_list.h"
#include "cli/work_progress.h"

namespace headroom::cli {
namespace {

struct AnalyzeWindowOptions {
  AnalyzeOptions analyze;
  int64_t window = 0;  // 0: a quarter of the context
  std::vector<int64_t> sinks = {0, 1, 4};
};

nlohmann::ordered_json to_json(const std::vector<experiments::WindowLoss>& losses,
                               const experiments::Passages& passages) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const experiments::WindowLoss& each : losses) {
    rows.push_back({{"window", each.window},
                    {"sinks", each.sinks},
                    {"loss_nats", each.loss.mean},
                    {"perplexity", std::exp(each.loss.mean)},
                    {"above_full_nats", each.loss.mean - losses.front().loss.mean},
                    {"cache_bytes", each.loss.cache_bytes}});
  }
  return {{"rows", rows}, {"context", passages.tokens}, {"passages", passages.count()}};
}

int run_analyze_window(const AnalyzeWindowOptions& options, const Common& common) {
  const experiments::TrainedModel trained = load_for_analysis(options.analyze, common);
  const int64_t window =
      options.window == 0 ? experiments::usual_window(trained.held_out.tokens) : options.window;
  std::vector<experiments::WindowLoss> losses;
  {
    WorkProgress progress(common, "analyze window");
    losses = experiments::window_losses(
        trained.model(), trained.held_out, window, options.sinks,
        [&progress](int64_t done, int64_t all) { progress.at(done, all); });
  }
  show(options.analyze, common, "Loss under a window",
       experiments::show_window_sinks(trained, losses), to_json(losses, trained.held_out));
  return 0;
}

}  // namespace

Action add_analyze_window(CLI::App& app, Common& common) {
  const auto options = std::make_shared<AnalyzeWindowOptions>();
  add_analyze_options(app, options->analyze);
  add_whole(app, "--window", options->window, 1, 1'000'000'000,
            "keys that a query sees, its own included", "a quarter of the context");
  add_numbers(app, "--sinks", options->sinks, 0, "first keys that are kept beside the window");
  set_footer(
      app,
      "  headroom analyze window runs/first\n"
      "  headroom analyze window runs/first --window 64 --sinks 0,1,2,4,8 --plot window.svg\n"
      "\nEach passage goes through the cache from its first token on; full attention stands\n"
      "beside it. A context past model.block_size asks more of rope than it was trained "
      "for.");
  return [options, &common] { return run_analyze_window(*options, common); };
}

}  // namespace headroom::cli
