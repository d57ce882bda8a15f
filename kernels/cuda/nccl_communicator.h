// Workers with a GPU each (NVIDIA, NCCL User Guide).
#pragma once

#include <memory>

#include "kernels/comm.h"

namespace headroom::kernels::cuda {

/// Sums and copies tensors on GPUs by NCCL, on a stream of its own beside the one that computes:
/// gradients travel while backward goes on. Tensors of the host's memory go by `hosts`, which finds
/// the workers, notices when one ends and outlives this. Until it is destroyed, whoever waits for
/// the GPU throws an Error when another worker can't be reached any more.
///
/// The backend of this worker's GPU has been asked for. Throws InputError in a build without NCCL.
std::unique_ptr<Communicator> make_nccl_communicator(Communicator& hosts);

}  // namespace headroom::kernels::cuda
