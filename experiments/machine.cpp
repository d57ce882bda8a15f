// Reading the processor from /proc/cpuinfo.
#include "experiments/machine.h"

#include <fstream>

#include "kernels/threads.h"

namespace headroom::experiments {

namespace {

/// "model name : ..." of the first processor; empty where the system doesn't say.
std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return "unknown processor";
}

}  // namespace

Machine this_machine() {
  Machine machine;
  machine.cpu = processor_name();
  machine.cores = kernels::available_cores();
  machine.threads = kernels::threads();
  return machine;
}

}  // namespace headroom::experiments
