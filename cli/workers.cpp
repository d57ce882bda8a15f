#include "cli/workers.h"

#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "kernels/comm.h"
#include "tensor/check.h"

namespace headroom::cli {

namespace {
kernels::Communicator* joined = nullptr;  // once the others are found

void meet_at(const kernels::WorkerPlace& place, const Common& common) {
  speak_as_worker(place.rank);
  if (place.rank == 0) {
    note(common, fmt::format("{} workers meet at {}:{}", place.size, place.address, place.port));
  }
  joined = &kernels::meet_workers();
}

/// Long enough for the first worker to end all, if it met the same.
void let_the_first_speak() {
  constexpr auto kLook = std::chrono::milliseconds(10);
  constexpr int kLooks = 100;
  try {
    for (int i = 0; i < kLooks; ++i) {
      joined->progress();
      std::this_thread::sleep_for(kLook);
    }
  } catch (const Error&) {  // it is gone, and was silent
  }
}

}  // namespace

void join_workers() {
  joined = &kernels::workers();
  if (joined->size() > 1) {
    speak_as_worker(joined->rank());
  }
}

void share_command(const std::string& command, Common& common) {
  if (command == "train" || command == "sweep") {
    const bool on_processors = common.device && common.device->type == Device::Type::cpu;
    if (const auto place = kernels::place_by_address(); place && !on_processors) {
      meet_at(*place, common);
    }
    common.quiet = common.quiet || joined->rank() > 0;
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

int fail(int status, std::string_view what) {
  const bool several = joined != nullptr && joined->size() > 1;
  if (several && joined->rank() > 0) {
    let_the_first_speak();
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
