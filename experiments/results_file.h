// The machine-readable results of a sweep: results.json and results.csv.
#pragma once

#include <filesystem>
#include <string>

#include "experiments/result.h"
#include "experiments/summary.h"

namespace headroom::experiments {

/// One object: {"rows": [{"name", "n_kv_head", "attention", "n_layer", "n_ff", "params",
/// "attention_params_per_layer", "cache_bytes_per_token", "val_loss": {"mean", "sd", "values"},
/// "final_loss": {the same}, "delta_vs_mha": {"mean", "ci95", "p"}, "verdict",
/// "published_val_loss", "tokens", "seconds", "sample", "runs": [{"seed", "best_val_loss",
/// "best_step", "final_val_loss", "tokens", "seconds", "curve": [{"step", "tokens",
/// "val_loss"}]}]}], "resolvable_difference", "seeds_to_resolve_0.005", "machine", "config" (YAML
/// text), "seeds", "corpus", "tokenizer", "fair", "cache_dtype", "sample_note", "started",
/// "seconds", "finished"}. val_loss is the best loss of each run; a row's tokens are those one run
/// is given, its seconds the sum over its runs. With one seed sd, ci95 and p are null; a figure
/// that can't be formed, and a loss that is not finite, is null too.
std::string results_json(const Sweep& sweep, const Summary& summary);

/// A header and one line per evaluation, in which what belongs to the run and to the row (with its
/// statistics) is repeated: the lines where step equals best_step are the runs. A run without an
/// evaluation has one line with empty step, tokens and val_loss. Empty stands for null.
std::string results_csv(const Sweep& sweep, const Summary& summary);

/// Writes results.json and results.csv into `folder`, each whole or not at all.
void write_results(const std::filesystem::path& folder, const Sweep& sweep, const Summary& summary);

/// The sweep that write_results() left in `folder`; a loss that was not finite is NaN. Throws
/// InputError naming the file when it is missing or is no such thing.
Sweep read_results(const std::filesystem::path& folder);

}  // namespace headroom::experiments
