// All workers of a communicator on GPUs, for a test.
#pragma once

#include <chrono>
#include <functional>
#include <vector>

#include "kernels/cpu/tcp_communicator.h"
#include "kernels/cuda/nccl_communicator.h"
#include "tests/simt/gpu.h"
#include "tests/simt/host_keeps_out.h"
#include "tests/worker_processes.h"

namespace headroom::testing {

/// Each in a process with a GPU whose memory the host can't touch; what each one's work returned.
inline std::vector<int> meet(int64_t size, const std::function<int(kernels::Communicator&)>& work) {
  const int port = free_port();
  return in_workers(size, [&](int64_t rank) {
    gpu();
    const simt::HostKeepsOut host_keeps_out;
    const auto hosts =
        kernels::cpu::make_tcp_communicator(place_of(rank, size, port), std::chrono::seconds(20));
    const auto workers = kernels::cuda::make_nccl_communicator(*hosts);
    return work(*workers);
  });
}

}  // namespace headroom::testing
