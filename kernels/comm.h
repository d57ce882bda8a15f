// Several processes ("workers") that compute one thing together: sums over all of them, and copies
// from one to the others.
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/worker_place.h"
#include "tensor/tensor.h"

namespace headroom::kernels {

/// Every worker calls the same operations in the same order with tensors of the same shape and
/// type: f32 or f64, broadcast() of any type.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int64_t rank() const = 0;  // of this worker, from 0
  virtual int64_t size() const = 0;  // workers in all
  /// Workers on this machine, and this one's number among them: that of its GPU.
  virtual int64_t local_size() const = 0;
  virtual int64_t local_rank() const = 0;

  /// Begins x = the sum of every worker's x; all get the same bits. x is not to be touched before
  /// finish().
  virtual void begin_sum(const Tensor& x) = 0;
  /// Lets what was begun go on, without waiting for it.
  virtual void progress() = 0;
  /// Waits for all that was begun, for as long as it takes; soon without using the processor. For
  /// tensors on a GPU it is the GPU that waits: what is asked of it from here on sees the sums.
  virtual void finish() = 0;

  /// x = worker `from`'s x. Waits as finish() does.
  virtual void broadcast(const Tensor& x, int64_t from) = 0;

  /// Ends all workers at once with this exit status.
  [[noreturn]] virtual void abort(int status) = 0;
};

/// A single worker: what it sums and copies is its own already.
Communicator& alone();
/// Those that this process was started with: MPI's ranks, by mpirun or a scheduler that speaks PMI;
/// otherwise alone(). Throws InputError when there are several and this build has no MPI, or one
/// that can't find them.
Communicator& workers();
/// Where this process stands among workers that are to meet at one address, as torchrun or Slurm
/// started them. Absent for a process alone, for those that MPI has found, and on a machine without
/// GPUs: elsewhere only MPI serves.
std::optional<WorkerPlace> place_by_address();
/// Those of workers(), or those of place_by_address(): the first call waits until all have come.
/// What they sum and copy lies in the host's memory. Throws InputError where they can't meet.
Communicator& meet_workers();
/// The same for tensors of `device` beside the host's: on a GPU NCCL sums. Throws InputError where
/// this build has no NCCL, and on the CPU where they were started to meet without MPI.
Communicator& workers(Device device);
/// Workers on this machine, which divide its cores, as far as they have met.
int64_t workers_here();
/// The device of this process where `first` is that of a single one: each of several workers takes
/// the GPU of its number on its machine. Throws InputError where that has fewer.
Device own_device(Device first);

/// The sum of every worker's value.
double sum_over(Communicator& workers, double value);
/// Waits until every worker has come here.
void meet(Communicator& workers);

}  // namespace headroom::kernels
