// headroom sweep: the experiment. Trains every n_kv_head with every seed and prints the table.
#include <CLI/App.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/progress.h"
#include "experiments/results_file.h"
#include "experiments/sweep.h"
#include "experiments/table.h"

namespace headroom::cli {
namespace {

struct Options {
  std::string config, folder;
  bool resume = false;
};

/// The sweep's own folder when it is what was named, else runs/NAME of configs/NAME.yaml.
std::filesystem::path default_folder(const ConfigArgument& argument) {
  return argument.run.empty() ? std::filesystem::path("runs") / argument.name : argument.run;
}

int run(const Options& options, const Common& common) {
  const ConfigArgument argument = load_config_argument(options.config, common);
  configs::Config config = argument.config;
  if (common.precision) {
    config.train.precision = *common.precision;
  }
  config.train.threads = common.threads.value_or(config.train.threads);
  use_configured_threads(common, config.train.threads);
  const std::filesystem::path folder =
      options.folder.empty() ? default_folder(argument) : std::filesystem::path(options.folder);
  experiments::SweepOutcome outcome;
  {
    TrainingProgress progress(common);
    outcome =
        experiments::run_sweep(config, {.folder = folder, .resume = options.resume}, progress);
  }
  if (outcome.interrupted) {
    complain(fmt::format("interrupted after {} of {} runs; what is done is in {}; --resume goes on",
                         outcome.summary.runs_done, outcome.summary.runs_planned, folder.string()));
    return kInterrupted;
  }
  if (common.json) {
    print(experiments::results_json(outcome.sweep, outcome.summary));
  } else {
    print(experiments::sweep_table(outcome.sweep, outcome.summary));
    note(common, fmt::format("the report is {}", (folder / "report.html").string()));
  }
  return 0;
}

}  // namespace

Action add_sweep(CLI::App& app, Common& common) {
  auto options = std::make_shared<Options>();
  app.add_option("CONFIG", options->config, "a config file or the name of a preset")->required();
  app.add_option("--out", options->folder, "the sweep's folder")
      ->type_name("DIR")
      ->default_str("runs/ and the config's name, or the sweep's folder given as CONFIG");
  app.add_flag("--resume", options->resume,
               "go on with the folder's sweep; sweep.seeds and sweep.n_kv_head may have grown");
  add_precision(app, common, "train.precision");
  set_footer(app,
             "  headroom sweep configs/gqa-quick.yaml --out runs/quick\n"
             "  headroom sweep configs/gqa-quick.yaml --out runs/quick --resume --set "
             "'sweep.seeds=[1,2,3]'\n\n"
             "Writes report.html, results.json and results.csv into DIR after every run. Ctrl-C "
             "finishes the step and saves (status 130).",
             true);
  return [options, &common] { return run(*options, common); };
}

}  // namespace headroom::cli
