// The variables that launchers set, checked one by one.
#include "kernels/worker_place.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <string_view>
#include <utility>

#include "tensor/check.h"

namespace headroom::kernels {

namespace {

constexpr int64_t kAnyNumber = std::numeric_limits<int64_t>::max();

std::string value_of(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? "" : text;
}

/// The variables of one launcher.
struct Names {
  const char *rank, *size, *local_rank, *local_size;
};
constexpr Names kTorchrun{"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
constexpr Names kSlurm{"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID",
                       "SLURM_STEP_TASKS_PER_NODE"};

std::string require(const char* variable, const Names& names) {
  std::string text = value_of(variable);
  check_input(!text.empty(), "{} is {}, but {} is not set: every worker needs both", names.size,
              value_of(names.size), variable);
  return text;
}

int64_t number(const char* variable, std::string_view text, int64_t least, int64_t most) {
  int64_t value = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value);
  const bool right = error == std::errc() && end == last && value >= least && value <= most;
  const std::string limit = most == kAnyNumber ? "on" : fmt::format("to {}", most);
  check_input(right, "{} is '{}', but must be a whole number from {} {}", variable, text, least,
              limit);
  return value;
}

/// Slurm writes how many tasks each machine has as "2(x3),1": the largest of these numbers.
int64_t most_on_one_machine(const char* variable, std::string_view list) {
  int64_t most = 1;
  while (!list.empty()) {
    const std::string_view machines = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), machines.size() + 1));
    most = std::max(most, number(variable, machines.substr(0, machines.find('(')), 1, kAnyNumber));
  }
  return most;
}

int64_t place_among(const char* variable, const char* all, int64_t size, const Names& names) {
  const int64_t value = number(variable, require(variable, names), 0, kAnyNumber);
  check_input(value < size, "{} is {}, but {} is {}: workers are numbered from 0 to {}", variable,
              value, all, size, size - 1);
  return value;
}

}  // namespace

Started started_by_address() {
  for (const Names& names : {kTorchrun, kSlurm}) {
    const bool meant = names.size == kTorchrun.size || !value_of("MASTER_ADDR").empty();
    if (std::string value = value_of(names.size); meant && !value.empty()) {
      return {names.size, std::move(value)};
    }
  }
  return {kTorchrun.size, "1"};
}

std::optional<WorkerPlace> worker_place() {
  const bool torchrun = !value_of(kTorchrun.size).empty();
  check_input(torchrun || value_of(kTorchrun.rank).empty(),
              "RANK is {}, but WORLD_SIZE is not set: every worker needs both",
              value_of(kTorchrun.rank));
  const Names& names = torchrun ? kTorchrun : kSlurm;
  WorkerPlace place;
  place.size = number(names.size, started_by_address().value, 1, kAnyNumber);
  if (place.size == 1) {
    return std::nullopt;
  }
  place.rank = place_among(names.rank, names.size, place.size, names);
  const std::string local_size = require(names.local_size, names);
  place.local_size = torchrun ? number(names.local_size, local_size, 1, place.size)
                              : most_on_one_machine(names.local_size, local_size);
  place.local_rank = place_among(names.local_rank, names.local_size, place.local_size, names);
  place.address = require("MASTER_ADDR", names);
  constexpr int64_t kLastPort = 65535;
  place.port =
      1 + static_cast<int>(number("MASTER_PORT", require("MASTER_PORT", names), 1, kLastPort - 1));
  return place;
}

}  // namespace headroom::kernels
