// The options of `train` and `sweep`, from the command line to a config and a folder.
#include "cli/training.h"

#include <CLI/App.hpp>

#include "train/device.h"
#include "train/interrupt.h"

namespace headroom::cli {

void add_training_options(CLI::App& app, TrainingOptions& options, Common& common,
                          const std::string& out_help, const std::string& folder_name,
                          const std::string& usual, const std::string& resume_help) {
  app.add_option("CONFIG", options.config, "a config file or the name of a preset")->required();
  app.add_option("--out", options.folder, out_help)->type_name(folder_name)->default_str(usual);
  app.add_flag("--resume", options.resume, resume_help);
  add_precision(app, common, "train.precision");
}

TrainingJob read_job(const TrainingOptions& options, Common& common) {
  const ConfigArgument argument = read_config_argument(options.config, common);
  TrainingJob job;
  job.config = argument.config;
  job.config.train.precision = common.precision.value_or(job.config.train.precision);
  job.config.train.threads = common.threads.value_or(job.config.train.threads);
  const Device first = common.device.value_or(configs::first_of(job.config.train.device));
  job.device = train::choose_device(kernels::own_device(first), job.config.train);
  job.config.train.device = configs::kind_of(job.device);
  job.workers = &kernels::workers(job.device);
  for (const std::string& each : argument.notes) {  // only the first worker's are seen
    note(common, each);
  }
  use_configured_threads(common, job.config.train.threads);
  job.in_place = options.folder.empty() && !argument.run.empty();
  job.folder = job.in_place             ? argument.run
               : options.folder.empty() ? std::filesystem::path("runs") / argument.name
                                        : std::filesystem::path(options.folder);
  return job;
}

int end_interrupted(const std::string& what) {
  complain(fmt::format("interrupted after {}; --resume goes on", what));
  return train::kInterrupted;
}

}  // namespace headroom::cli
