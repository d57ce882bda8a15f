// headroom sweep: the experiment. Trains every n_kv_head with every seed and prints the table.
#include <CLI/App.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/progress.h"
#include "cli/training.h"
#include "experiments/results_file.h"
#include "experiments/sweep.h"
#include "experiments/table.h"

namespace headroom::cli {
namespace {

int run_sweep(const TrainingOptions& options, Common& common) {
  const TrainingJob job = read_job(options, common);
  experiments::SweepOutcome outcome;
  {
    TrainingProgress progress(common);
    outcome = experiments::run_sweep(job.config,
                                     {.folder = job.folder,
                                      .resume = options.resume,
                                      .device = job.device,
                                      .workers = job.workers},
                                     progress);
  }
  if (job.workers->rank() > 0) {
    return outcome.interrupted ? train::kInterrupted : 0;
  }
  if (outcome.interrupted) {
    return end_interrupted(fmt::format("{} of {} runs; what is done is in {}",
                                       outcome.summary.runs_done, outcome.summary.runs_planned,
                                       job.folder.string()));
  }
  if (common.json) {
    print(experiments::results_json(outcome.sweep, outcome.summary));
  } else {
    print(experiments::sweep_table(outcome.sweep, outcome.summary));
    note(common, fmt::format("the report is {}", (job.folder / "report.html").string()));
  }
  return 0;
}

}  // namespace

Action add_sweep(CLI::App& app, Common& common) {
  auto options = std::make_shared<TrainingOptions>();
  add_training_options(
      app, *options, common, "the sweep's folder", "DIR",
      "runs/ and the config's name, or the sweep's folder given as CONFIG",
      "go on with the folder's sweep; sweep.seeds, sweep.n_kv_head and sweep.also may have grown");
  set_footer(app,
             "  headroom sweep configs/gqa-quick.yaml --out runs/quick\n"
             "  headroom sweep configs/gqa-quick.yaml --out runs/quick --resume --set "
             "'sweep.seeds=[1,2,3]'\n"
             "  headroom sweep configs/gqa-quick.yaml --set 'sweep.also=[mla,window,learned-sink]'"
             "\n\n"
             "mpirun -n 2 headroom sweep ... gives every second run to each of two workers.\n"
             "Writes report.html, results.json and results.csv into DIR after every run. Ctrl-C "
             "finishes the step and saves (status 130).",
             true);
  return [options, &common] { return run_sweep(*options, common); };
}

}  // namespace headroom::cli
