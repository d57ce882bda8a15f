// A build without NCCL.
#include "kernels/cuda/nccl_communicator.h"
#include "kernels/threads.h"
#include "tensor/check.h"

namespace headroom::kernels::cuda {

std::unique_ptr<Communicator> make_nccl_communicator(Communicator& hosts) {
  throw InputError(
      fmt::format("{} workers were started on GPUs, but this build has no NCCL: install its header "
                  "and library (Debian: libnccl-dev, pip: nvidia-nccl-cu13) and configure again",
                  hosts.size()));
}

}  // namespace headroom::kernels::cuda

namespace headroom::kernels {

std::string nccl_name() { return ""; }

}  // namespace headroom::kernels
