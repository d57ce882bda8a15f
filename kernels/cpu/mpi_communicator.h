// Workers as the ranks of MPI (MPI Forum, MPI: A Message-Passing Interface Standard 3.1).
#pragma once

#include <memory>

#include "kernels/comm.h"

namespace headroom::kernels::cpu {

/// All ranks of MPI_COMM_WORLD. Throws InputError in a build without MPI.
std::unique_ptr<Communicator> make_mpi_communicator();

}  // namespace headroom::kernels::cpu
