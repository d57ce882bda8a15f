// The program over the harness, run as a user would.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/run_program.h"

namespace headroom::testing {

using Arguments = std::vector<std::string>;
using Variables = std::map<std::string, std::string>;

/// headroom over the harness, on a machine with two GPUs unless SIMT_DEVICES says otherwise,
/// started by `launcher`.
inline RunOptions on_gpus(Variables variables = {}, Arguments launcher = {}) {
  variables.insert({{"SIMT_DEVICES", "2"},
                    {"OMP_NUM_THREADS", "1"},
                    {"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                    {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
                    {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
                    {"OMPI_MCA_hwloc_base_binding_policy", "none"}});
  // The words after the launcher's are the usual program and its arguments.
  launcher.insert(launcher.end(), {"sh", "-c", "shift; exec " HEADROOM_SIMT " \"$@\"", "sh"});
  return {.launcher = std::move(launcher), .environment = std::move(variables)};
}

}  // namespace headroom::testing
