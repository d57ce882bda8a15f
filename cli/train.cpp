// headroom train: prints what it is about to do, how it goes and what came of it.
#include <CLI/App.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/progress.h"
#include "cli/training.h"
#include "configs/count.h"
#include "experiments/ceilings.h"
#include "train/run_folder.h"
#include "train/trainer.h"

namespace headroom::cli {
namespace {

void print_result(const Common& common, const train::TrainResult& result,
                  const std::filesystem::path& folder, Device device) {
  if (common.json) {
    print_json({{"run", folder.string()},
                {"step", result.step},
                {"final_loss_nats", result.final_loss},
                {"best_loss_nats", result.best_loss},
                {"best_step", result.best_step},
                {"tokens", result.tokens},
                {"params", result.parameters},
                {experiments::peak_bytes_name(device), experiments::peak_bytes(device)},
                {"planned_bytes", result.planned_bytes},
                {"seconds", result.seconds}});
    return;
  }
  print(
      fmt::format("best validation loss  {:.4f} nats per token (step {})\n"
                  "final validation loss {:.4f} nats per token (step {})\n"
                  "trained               {} tokens in {}\n"
                  "memory                {} at most, {} planned\n"
                  "run folder            {}\n",
                  result.best_loss, result.best_step, result.final_loss, result.step, result.tokens,
                  clock(result.seconds), configs::human_bytes(experiments::peak_bytes(device)),
                  configs::human_bytes(result.planned_bytes), folder.string()));
}

int run_train(const TrainingOptions& options, Common& common) {
  const TrainingJob job = read_job(options, common);
  check_input(!job.in_place, "{}: is a run; --out names the folder of the new one",
              job.folder.string());
  train::TrainResult result;
  {
    TrainingProgress printer(common);
    result = train::train(job.config,
                          {.folder = job.folder,
                           .resume = options.resume,
                           .device = job.device,
                           .workers = job.workers},
                          printer);
  }
  if (result.interrupted) {
    return end_interrupted(fmt::format("step {}, which is saved in {}", result.step,
                                       (job.folder / train::kLastFile).string()));
  }
  print_result(common, result, job.folder, job.device);
  return 0;
}

}  // namespace

Action add_train(CLI::App& app, Common& common) {
  auto options = std::make_shared<TrainingOptions>();
  add_training_options(app, *options, common, "the run's folder", "RUN",
                       "runs/ and the config's name",
                       "go on from the last save, bit for bit; begin where nothing was saved");
  set_footer(app,
             "  headroom train configs/shakespeare-char-cpu.yaml --out runs/first\n"
             "  headroom train configs/shakespeare-char-cpu.yaml --out runs/first --resume\n\n"
             "mpirun -n 2 headroom train ... divides every step's sequences among two workers.\n"
             "Ctrl-C finishes the step and saves it (status 130); a second one ends at once.",
             true);
  return [options, &common] { return run_train(*options, common); };
}

}  // namespace headroom::cli
