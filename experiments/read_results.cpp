// results.json back into what was written.
#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "experiments/results_file.h"
#include "tensor/check.h"
#include "tensor/file.h"

namespace headroom::experiments {
namespace {

double loss(const nlohmann::json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

SeedRun read_run_json(const nlohmann::json& json) {
  SeedRun run{.seed = json.at("seed"),
              .best_loss = loss(json.at("best_val_loss")),
              .best_step = json.at("best_step"),
              .final_loss = loss(json.at("final_val_loss")),
              .seconds = json.at("seconds"),
              .tokens = json.at("tokens"),
              .curve = {}};
  for (const nlohmann::json& point : json.at("curve")) {
    run.curve.push_back({.step = point.at("step"),
                         .tokens = point.at("tokens"),
                         .val_loss = loss(point.at("val_loss"))});
  }
  return run;
}

Row read_row(const nlohmann::json& json) {
  Row row{.name = json.at("name"),
          .n_kv_head = json.at("n_kv_head"),
          .attention = json.at("attention"),
          .n_layer = json.at("n_layer"),
          .n_ff = json.at("n_ff"),
          .params = json.at("params"),
          .attention_params_per_layer = json.at("attention_params_per_layer"),
          .cache_bytes_per_token = json.at("cache_bytes_per_token"),
          .tokens = json.at("tokens"),
          .runs = {},
          .sample = json.at("sample")};
  for (const nlohmann::json& run : json.at("runs")) row.runs.push_back(read_run_json(run));
  return row;
}

Sweep read_sweep(const nlohmann::json& json) {
  const nlohmann::json& machine = json.at("machine");
  Sweep sweep{.rows = {},
              .fair = json.at("fair"),
              .corpus = json.at("corpus"),
              // Corpora are named by their content: the name of any other file is that of the file.
              .tiny_shakespeare = json.at("corpus") == "Tiny Shakespeare",
              .tokenizer = json.at("tokenizer"),
              .cache_dtype = json.at("cache_dtype"),
              .seeds = json.at("seeds").get<std::vector<uint64_t>>(),
              .sample_note = json.at("sample_note"),
              .config_yaml = json.at("config"),
              .machine = {.cpu = machine.at("cpu"),
                          .device = machine.value("device", "cpu"),
                          .cores = machine.at("cores"),
                          .threads = machine.at("threads"),
                          .precision = machine.at("precision")},
              .started = json.at("started"),
              .seconds = json.at("seconds"),
              .finished = json.at("finished")};
  for (const nlohmann::json& row : json.at("rows")) sweep.rows.push_back(read_row(row));
  return sweep;
}

}  // namespace

Sweep read_results(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "results.json";
  check_input(std::filesystem::exists(path), "{}: no such file: {} is no folder of a sweep",
              path.string(), folder.string());
  try {
    return read_sweep(nlohmann::json::parse(read_file(path)));
  } catch (const nlohmann::json::exception& error) {
    throw InputError(
        fmt::format("{}: is not what a sweep writes: {}", path.string(), error.what()));
  }
}

}  // namespace headroom::experiments
