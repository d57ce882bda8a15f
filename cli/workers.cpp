#include "cli/workers.h"

#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "kernels/worker_place.h"
#include "tensor/check.h"

namespace headroom::cli {

namespace {
kernels::Communicator* joined = nullptr;  // once the others are found
}

void join_workers() {
  joined = &kernels::workers();
  if (joined->size() > 1) {
    speak_as_worker(joined->rank());
  }
}

void check_workers(const std::string& command, Common& common) {
  common.quiet = common.quiet || joined->rank() > 0;
  if (command == "train" || command == "sweep") {
    return;
  }
  const auto [variable, count] = kernels::started_by_address();
  check_input(joined->size() == 1,
              "headroom {} is the work of one process, and mpirun started {}: train and sweep can "
              "be shared",
              command, joined->size());
  check_input(count == "1",
              "headroom {} is the work of one process, and {} is {}: train and sweep can be shared",
              command, variable, count);
}

kernels::Communicator& share_job(Device device, Common& common) {
  kernels::Communicator& workers = kernels::workers(device);
  const bool met_here = workers.size() > 1 && joined->size() == 1;
  joined = &workers;
  if (met_here) {
    speak_as_worker(workers.rank());
    common.quiet = common.quiet || workers.rank() > 0;
    use_threads(common);
  }
  return workers;
}

int fail(int status, std::string_view what) {
  const bool several = joined != nullptr && joined->size() > 1;
  if (several && joined->rank() > 0) {
    // Long enough for the first worker to say it and end all, if it met the same.
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
  complain(what);
  if (several) {
    // mpirun's own message on the end should come after this one, which reaches it through a pipe.
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    joined->abort(status);
  }
  return status;
}

}  // namespace headroom::cli
