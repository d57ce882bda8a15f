// A sweep as JSON and as CSV.
#include "experiments/results_file.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "experiments/json_number.h"
#include "tensor/file.h"

namespace headroom::experiments {
namespace {

using Json = nlohmann::ordered_json;

Json loss_json(const LossSummary& loss) {
  Json values = Json::array();
  for (const double value : loss.values) values.push_back(number(value));
  return {{"mean", number(loss.mean)}, {"sd", number(loss.sd)}, {"values", std::move(values)}};
}

Json delta_json(const std::optional<PairedDifference>& delta) {
  if (!delta) return {{"mean", nullptr}, {"ci95", nullptr}, {"p", nullptr}};
  return {{"mean", number(delta->mean)}, {"ci95", number(delta->ci95)}, {"p", number(delta->p)}};
}

Json run_json(const SeedRun& run) {
  Json curve = Json::array();
  for (const LossPoint& point : run.curve) {
    curve.push_back(
        {{"step", point.step}, {"tokens", point.tokens}, {"val_loss", number(point.val_loss)}});
  }
  return {{"seed", run.seed},           {"best_val_loss", number(run.best_loss)},
          {"best_step", run.best_step}, {"final_val_loss", number(run.final_loss)},
          {"tokens", run.tokens},       {"seconds", run.seconds},
          {"curve", std::move(curve)}};
}

double total_seconds(const Row& row) {
  double seconds = 0;
  for (const SeedRun& run : row.runs) seconds += run.seconds;
  return seconds;
}

Json row_json(const Row& row, const RowSummary& summary) {
  Json runs = Json::array();
  for (const SeedRun& run : row.runs) runs.push_back(run_json(run));
  return {{"name", row.name},
          {"n_kv_head", row.n_kv_head},
          {"attention", row.attention},
          {"n_layer", row.n_layer},
          {"n_ff", row.n_ff},
          {"params", row.params},
          {"attention_params_per_layer", row.attention_params_per_layer},
          {"cache_bytes_per_token", row.cache_bytes_per_token},
          {"val_loss", loss_json(summary.best)},
          {"final_loss", loss_json(summary.final)},
          {"delta_vs_mha", delta_json(summary.delta)},
          {"verdict", summary.sentence},
          {"published_val_loss", number(summary.published)},
          {"tokens", row.tokens},
          {"seconds", total_seconds(row)},
          {"sample", row.sample},
          {"runs", std::move(runs)}};
}

std::string csv_text(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) quoted.append(c == '"' ? 2 : 1, c);
  return quoted + "\"";
}

// Enough digits to read the same double back.
std::string csv_number(std::optional<double> value) {
  return value && std::isfinite(*value) ? fmt::format("{}", *value) : "";
}

constexpr std::string_view kCsvHeader =
    "corpus,fair,name,n_kv_head,attention,n_layer,n_ff,params,attention_params_per_layer,"
    "cache_bytes_per_token,row_mean_best_val_loss,row_sd_best_val_loss,row_mean_final_val_loss,"
    "row_sd_final_val_loss,delta_vs_mha,delta_vs_mha_ci95,delta_vs_mha_p,seed,best_val_loss,best_"
    "step,"
    "final_val_loss,run_tokens,run_seconds,step,tokens,val_loss\n";

std::string csv_row_fields(const Sweep& sweep, const Row& row, const RowSummary& summary) {
  const PairedDifference delta = summary.delta.value_or(PairedDifference{});
  return fmt::format(
      "{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}", csv_text(sweep.corpus), sweep.fair,
      csv_text(row.name), row.n_kv_head, row.attention, row.n_layer, row.n_ff, row.params,
      row.attention_params_per_layer, row.cache_bytes_per_token, csv_number(summary.best.mean),
      csv_number(summary.best.sd), csv_number(summary.final.mean), csv_number(summary.final.sd),
      summary.delta ? csv_number(delta.mean) : "", csv_number(delta.ci95), csv_number(delta.p));
}

}  // namespace

std::string results_json(const Sweep& sweep, const Summary& summary) {
  Json rows = Json::array();
  for (size_t i = 0; i < sweep.rows.size(); ++i) {
    rows.push_back(row_json(sweep.rows[i], summary.rows[i]));
  }
  const Machine& machine = sweep.machine;
  const Json seeds_for_goal =
      summary.seeds_for_goal ? Json(*summary.seeds_for_goal) : Json(nullptr);
  const Json json = {{"rows", std::move(rows)},
                     {"resolvable_difference", number(summary.resolvable)},
                     {fmt::format("seeds_to_resolve_{}", kGoal), seeds_for_goal},
                     {"machine",
                      {{"cpu", machine.cpu},
                       {"cores", machine.cores},
                       {"threads", machine.threads},
                       {"device", machine.device},
                       {"precision", machine.precision}}},
                     {"config", sweep.config_yaml},
                     {"seeds", sweep.seeds},
                     {"corpus", sweep.corpus},
                     {"tokenizer", sweep.tokenizer},
                     {"fair", sweep.fair},
                     {"cache_dtype", sweep.cache_dtype},
                     {"sample_note", sweep.sample_note},
                     {"started", sweep.started},
                     {"seconds", sweep.seconds},
                     {"finished", sweep.finished}};
  // A sample from a byte-level model may be no valid UTF-8.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string results_csv(const Sweep& sweep, const Summary& summary) {
  std::string csv(kCsvHeader);
  for (size_t i = 0; i < sweep.rows.size(); ++i) {
    const std::string row_fields = csv_row_fields(sweep, sweep.rows[i], summary.rows[i]);
    for (const SeedRun& run : sweep.rows[i].runs) {
      const std::string fields =
          fmt::format("{},{},{},{},{},{},{}", row_fields, run.seed, csv_number(run.best_loss),
                      run.best_step, csv_number(run.final_loss), run.tokens, run.seconds);
      if (run.curve.empty()) csv += fields + ",,,\n";
      for (const LossPoint& point : run.curve) {
        csv += fmt::format("{},{},{},{}\n", fields, point.step, point.tokens,
                           csv_number(point.val_loss));
      }
    }
  }
  return csv;
}

void write_results(const std::filesystem::path& folder, const Sweep& sweep,
                   const Summary& summary) {
  write_file(folder / "results.json", results_json(sweep, summary));
  write_file(folder / "results.csv", results_csv(sweep, summary));
}

}  // namespace headroom::experiments
