// A build without MPI.
#include "kernels/cpu/mpi_communicator.h"
#include "kernels/threads.h"
#include "tensor/check.h"

namespace headroom::kernels::cpu {

std::unique_ptr<Communicator> make_mpi_communicator() {
  throw InputError(
      "several workers were started, but this build has no MPI: install its headers "
      "(Debian: libopenmpi-dev) and configure again");
}

}  // namespace headroom::kernels::cpu

namespace headroom::kernels {

std::string mpi_name() { return ""; }

}  // namespace headroom::kernels
