// One worker, and the choice of who the workers are.
#include "kernels/comm.h"

#include <cstdlib>
#include <memory>

#include "kernels/cpu/mpi_communicator.h"
#include "kernels/cpu/tcp_communicator.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/nccl_communicator.h"
#include "kernels/threads.h"
#include "kernels/worker_place.h"
#include "tensor/check.h"

namespace headroom::kernels {

namespace {

class Alone final : public Communicator {
 public:
  int64_t rank() const override { return 0; }
  int64_t size() const override { return 1; }
  int64_t local_size() const override { return 1; }
  int64_t local_rank() const override { return 0; }
  void begin_sum(const Tensor&) override {}
  void progress() override {}
  void finish() override {}
  void broadcast(const Tensor&, int64_t) override {}
  [[noreturn]] void abort(int status) override { std::_Exit(status); }
};

/// How many processes a launcher has started beside this one and with it: Open MPI's mpirun,
/// MPICH's and Slurm's PMI, or Slurm's srun by whatever protocol. With MASTER_ADDR srun's tasks are
/// meant to find one another as torchrun's do.
int64_t started() {
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    if (const char* text = std::getenv(variable); text != nullptr) {
      const bool by_address =
          variable == std::string_view("SLURM_STEP_NUM_TASKS") && std::getenv("MASTER_ADDR");
      return by_address ? 1 : std::strtoll(text, nullptr, 10);
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
              "own mpirun, or by srun with an --mpi that it speaks; on GPUs MASTER_ADDR and "
              "MASTER_PORT do instead",
              count, mpi_name());
  return mpi;
}

/// Null until they have met.
std::unique_ptr<Communicator>& met_by_address() {
  static std::unique_ptr<Communicator> instance;
  return instance;
}

Communicator& workers_on_processors() {
  const auto [variable, count] = started_by_address();
  check_input(workers().size() > 1 || count == "1",
              "{} is {}, but workers on processors find one another by MPI: start them by mpirun "
              "-n {} headroom ...",
              variable, count, count);
  return workers();
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

std::optional<WorkerPlace> place_by_address() {
  return workers().size() == 1 && cuda::device_count() > 0 ? worker_place() : std::nullopt;
}

Communicator& meet_workers() {
  std::unique_ptr<Communicator>& met = met_by_address();
  if (const auto place = place_by_address(); place && met == nullptr) {
    met = cpu::make_tcp_communicator(*place);
  }
  return met != nullptr ? *met : workers();
}

Communicator& workers(Device device) {
  if (device.type == Device::Type::cpu) {
    return workers_on_processors();
  }
  Communicator& hosts = meet_workers();
  if (hosts.size() == 1) {
    return alone();
  }
  static const std::unique_ptr<Communicator> gpus = cuda::make_nccl_communicator(hosts);
  return *gpus;
}

int64_t workers_here() {
  return met_by_address() != nullptr ? met_by_address()->local_size() : workers().local_size();
}

Device own_device(Device first) {
  if (first.type == Device::Type::cpu) {
    return first;
  }
  const std::optional<WorkerPlace> place = place_by_address();
  const int64_t size = place ? place->size : workers().size();
  if (size == 1) {
    return first;
  }
  check_input(first.index == 0,
              "the device is {}, but each of {} workers takes the GPU of its own number: use "
              "--device cuda",
              first, size);
  const int64_t number = place ? place->local_rank : workers().local_rank();
  const int gpus = cuda::device_count();
  check_input(gpus == 0 || number < gpus,
              "this is worker {} of its machine, counted from 0, which shows it {} GPU{}: each "
              "worker needs one of its own, and is to see all of them",
              number, gpus, gpus == 1 ? "" : "s");
  return {first.type, static_cast<int>(number)};
}

double sum_over(Communicator& workers, double value) {
  const Tensor sum = Tensor::from(std::vector<double>{value}, {1});
  workers.begin_sum(sum);
  workers.finish();
  return sum.item();
}

void meet(Communicator& workers) { sum_over(workers, 0); }

}  // namespace headroom::kernels
