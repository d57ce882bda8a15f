// Where this process stands among those that torchrun or Slurm started with it, as their variables
// tell: workers on GPUs need no MPI.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace headroom::kernels {

struct WorkerPlace {
  int64_t rank = 0, size = 1;
  int64_t local_rank = 0, local_size = 1;  // on this machine
  std::string address;                     // of worker 0's machine
  int port = 0;                            // at which worker 0 listens
};

/// From RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT (torchrun,
/// "Environment Variables"). Where WORLD_SIZE is unset but MASTER_ADDR isn't, srun's SLURM_PROCID,
/// SLURM_STEP_NUM_TASKS, SLURM_LOCALID and SLURM_STEP_TASKS_PER_NODE stand for the first four. Not
/// SLURM_NTASKS, which a batch script has too, that runs once.
/// Absent for a process alone. Throws InputError naming a variable that is missing or wrong.
///
/// The port is the one after MASTER_PORT: at MASTER_PORT torchrun's own store listens.
std::optional<WorkerPlace> worker_place();

/// The variable that says how many were started, for messages, and its value: WORLD_SIZE, or where
/// MASTER_ADDR is set SLURM_STEP_NUM_TASKS. Without either "1"; it may be no number.
struct Started {
  std::string variable, value;
};
Started started_by_address();

}  // namespace headroom::kernels
