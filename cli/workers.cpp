#include "cli/workers.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "kernels/comm.h"
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
  const bool together = command == "train" || command == "sweep";
  const int64_t size = joined->size();
  if (size > 1) {
    check_input(
        together,
        "headroom {} is the work of one process, and mpirun started {}: train and sweep can "
        "be shared",
        command, size);
    common.quiet = common.quiet || joined->rank() > 0;
    return;
  }
  const char* world = std::getenv("WORLD_SIZE");
  check_input(!together || world == nullptr || std::strtoll(world, nullptr, 10) <= 1,
              "WORLD_SIZE is {}, but workers on processors are started by mpirun: mpirun -n {} "
              "headroom {} ...",
              world == nullptr ? "" : world, world == nullptr ? "" : world, command);
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
