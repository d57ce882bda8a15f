// headroom analyze low-rank: the loss against the numbers that are kept of keys and values.
#include <CLI/App.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/analyze.h"
#include "cli/number_list.h"
#include "cli/work_progress.h"

namespace headroom::cli {
namespace {

struct AnalyzeLowRankOptions {
  AnalyzeOptions analyze;
  std::vector<int64_t> ranks;  // none: the usual ones
};

nlohmann::ordered_json to_json(const configs::ModelConfig& model,
                               const experiments::LowRank& result) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const experiments::RankLoss& each : result.ranks) {
    const experiments::RankCost cost = experiments::rank_cost(model, each.rank);
    rows.push_back({{"rank", each.rank},
                    {"energy_kept", each.energy},
                    {"loss_nats", each.loss},
                    {"above_full_nats", each.loss - result.full_loss},
                    {"cache_bytes_per_token", cost.cache_bytes},
                    {"basis_bytes", cost.basis_bytes},
                    {"flop_per_key_full", cost.flop_full},
                    {"flop_per_key_rebuilt", cost.flop_rebuilt},
                    {"flop_per_key_absorbed", cost.flop_absorbed}});
  }
  return {{"width", result.width}, {"full_loss_nats", result.full_loss}, {"rows", rows}};
}

int run_analyze_low_rank(const AnalyzeLowRankOptions& options, const Common& common) {
  const experiments::TrainedModel trained = load_for_analysis(options.analyze, common);
  const configs::ModelConfig& model = trained.run.config.model;
  experiments::LowRank result;
  {
    WorkProgress progress(common, "analyze low-rank");
    result = experiments::low_rank(
        trained.model(), trained.training, trained.held_out,
        options.ranks.empty() ? experiments::usual_ranks(2 * model.kv_dim()) : options.ranks,
        [&progress](int64_t done, int64_t all) { progress.at(done, all); });
  }
  show(options.analyze, common, "Loss against the rank of keys and values",
       experiments::show_low_rank(trained, result), to_json(model, result));
  return 0;
}

}  // namespace

Action add_analyze_low_rank(CLI::App& app, Common& common) {
  const auto options = std::make_shared<AnalyzeLowRankOptions>();
  add_analyze_options(app, options->analyze);
  add_numbers(app, "--ranks", options->ranks, 1,
              "numbers that are kept per token and layer, of 2 * n_kv_head * head_dim",
              "all of them divided by 1, 2, 3, 4, 6, 8, 12, 16");
  set_footer(
      app,
      "  headroom analyze low-rank runs/first\n"
      "  headroom analyze low-rank runs/first --ranks 16,32,64 --plot low-rank.svg\n\n"
      "Keys before rotation and values of each layer, side by side, are projected on the first r\n"
      "eigenvectors of their second moment: fitted on training text, judged on held-out text.");
  return [options, &common] { return run_analyze_low_rank(*options, common); };
}

}  // namespace headroom::cli
