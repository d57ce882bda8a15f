// What `train` and `sweep` share: CONFIG, --out, --resume and --precision, and how they end when
// they are interrupted.
#pragma once

#include <filesystem>
#include <string>

#include "cli/common.h"
#include "kernels/comm.h"

namespace headroom::cli {

struct TrainingOptions {
  std::string config, folder;
  bool resume = false;
};

/// Registers the options. `folder_name` and `usual` are how the help calls --out's value and its
/// default; the other two say what --out and --resume are.
void add_training_options(CLI::App& app, TrainingOptions& options, Common& common,
                          const std::string& out_help, const std::string& folder_name,
                          const std::string& usual, const std::string& resume_help);

struct TrainingJob {
  configs::Config config;  // with --precision, --threads and the kind of --device in it
  Device device;           // which has been asked for its kernels
  kernels::Communicator* workers = nullptr;
  std::filesystem::path folder;  // --out; else the run or sweep that CONFIG is; else runs/NAME
  bool in_place = false;         // the second of these
};

/// Reads CONFIG, sets the threads and finds the other workers. Throws InputError.
TrainingJob read_job(const TrainingOptions& options, Common& common);

/// Says that training was interrupted after `what`, and that it can go on; returns the exit status.
int end_interrupted(const std::string& what);

}  // namespace headroom::cli
