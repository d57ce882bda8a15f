// Finding measured losses in the result files of sweeps and of `headroom reproduce`.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "experiments/advice.h"
#include "experiments/results_file.h"
#include "tensor/check.h"
#include "tensor/file.h"

namespace headroom::experiments {
namespace {

namespace fs = std::filesystem;
void add_sweep(const fs::path& folder, MeasuredLosses& measured) {
  const Sweep sweep = read_results(folder);
  const Summary summary = summarize(sweep);
  for (size_t i = 0; i < sweep.rows.size(); ++i) {
    const Row& row = sweep.rows[i];
    const std::optional<PairedDifference>& delta = summary.rows[i].delta;
    if (i != summary.reference && !delta) {
      continue;
    }
    const double above = i == summary.reference ? 0.0 : delta->mean;
    if (row.name == fmt::format("kv{}", row.n_kv_head)) {
      measured.heads[row.n_kv_head] = above;
    } else {
      measured.rows[row.name] = above;
    }
  }
  measured.sources.push_back((folder / "results.json").string());
}

void add_exhibits(const nlohmann::json& rows, const fs::path& path, MeasuredLosses& measured) {
  std::map<std::string, double> windows;
  for (const nlohmann::json& row : rows) {
    if (!row.at("ours").is_number()) {
      continue;
    }
    if (row.at("exhibit") == "kv-bits") {
      measured.types[row.at("figure")] = row.at("ours");
    } else if (row.at("exhibit") == "window-sinks") {
      windows[row.at("figure")] = row.at("ours");
    }
  }
  for (const auto& [figure, loss] : windows) {
    for (const int64_t sinks : {0, 1, 4}) {
      if (figure.ends_with(fmt::format(", {} sink{}", sinks, sinks == 1 ? "" : "s")) &&
          windows.contains("full attention")) {
        measured.sinks[sinks] = loss - windows.at("full attention");
      }
    }
  }
  measured.sources.push_back(path.string());
}

}  // namespace

MeasuredLosses read_measured(const fs::path& folder) {
  const fs::path path = folder / "results.json";
  check_input(fs::exists(path), "{}: no such file: {} holds no results of a sweep or of reproduce",
              path.string(), folder.string());
  MeasuredLosses measured;
  try {
    const nlohmann::json rows = nlohmann::json::parse(read_file(path)).at("rows");
    if (!rows.empty() && rows.at(0).contains("exhibit")) {
      add_exhibits(rows, path, measured);
    } else {
      add_sweep(folder, measured);
    }
  } catch (const nlohmann::json::exception& error) {
    throw InputError(fmt::format("{}: is neither what a sweep writes nor what reproduce does: {}",
                                 path.string(), error.what()));
  }
  for (const char* sweep : {"sweep-quick", "sweep"}) {  // where reproduce keeps its own
    if (fs::exists(folder / sweep / "results.json")) {
      add_sweep(folder / sweep, measured);
    }
  }
  return measured;
}

}  // namespace headroom::experiments
