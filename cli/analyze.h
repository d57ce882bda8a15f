// What the `analyze` commands share: their options, the run and its text, and how a result is
// shown.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cli/commands.h"
#include "experiments/quality_exhibits.h"

namespace headroom::cli {

struct AnalyzeOptions {
  std::string run, corpus, plot;
  int64_t passages = 32, context = 0;
};

/// Registers RUN, --corpus, --passages, --context and --plot. The options live as long as the
/// command.
void add_analyze_options(CLI::App& app, AnalyzeOptions& options);

/// Loads the run and its passages; notes are printed. Throws InputError.
experiments::TrainedModel load_for_analysis(const AnalyzeOptions& options, const Common& common);

/// Prints the exhibit, with its title, as a table, or `json` with the figures and their
/// explanation under "published" and "why"; writes the picture where --plot names a file.
void show(const AnalyzeOptions& options, const Common& common, const std::string& title,
          const experiments::Exhibit& exhibit, nlohmann::ordered_json json);

}  // namespace headroom::cli
