// One worker, and the choice of who the workers are.
#include "kernels/comm.h"

#include <cstdlib>
#include <memory>

#include "kernels/cpu/mpi_communicator.h"
#include "kernels/threads.h"
#include "tensor/check.h"

namespace headroom::kernels {

namespace {

class Alone final : public Communicator {
 public:
  int64_t rank() const override { return 0; }
  int64_t size() const override { return 1; }
  int64_t local_size() const override { return 1; }
  void begin_sum(const Tensor&) override {}
  void progress() override {}
  void finish() override {}
  void broadcast(const Tensor&, int64_t) override {}
  [[noreturn]] void abort(int status) override { std::_Exit(status); }
};

/// How many processes a launcher has started beside this one and with it: Open MPI's mpirun,
/// MPICH's and Slurm's PMI, or Slurm's srun by whatever protocol.
int64_t started() {
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    if (const char* text = std::getenv(variable); text != nullptr) {
      return std::strtoll(text, nullptr, 10);
    }
  }
  return 1;
}

/// Null for a single worker.
std::unique_ptr<Communicator> find_others() {
  const int64_t count = started();
  if (count <= 1) {
    return nullptr;
  }
  auto mpi = cpu::make_mpi_communicator();
  // An MPI that doesn't speak the launcher's protocol takes each process for the only one.
  check_input(mpi->size() > 1,
              "{} processes were started together, but {} finds this one alone: start them by its "
              "own mpirun, or by srun with an --mpi that it speaks",
              count, mpi_name());
  return mpi;
}

}  // namespace

Communicator& alone() {
  static Alone one;
  return one;
}

Communicator& workers() {
  static const std::unique_ptr<Communicator> mpi = find_others();
  return mpi != nullptr ? *mpi : alone();
}

double sum_over(Communicator& workers, double value) {
  const Tensor sum = Tensor::from(std::vector<double>{value}, {1});
  workers.begin_sum(sum);
  workers.finish();
  return sum.item();
}

void meet(Communicator& workers) { sum_over(workers, 0); }

}  // namespace headroom::kernels
