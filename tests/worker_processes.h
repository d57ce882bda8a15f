// Several workers for a test: their variables, a port of their own, and processes.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "kernels/worker_place.h"

namespace headroom::testing {

/// A port that nobody listens at just now, and the one after it.
inline int free_port() {
  const int handle = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ::bind(handle, reinterpret_cast<sockaddr*>(&address), size);
  ::getsockname(handle, reinterpret_cast<sockaddr*>(&address), &size);
  ::close(handle);
  return ntohs(address.sin_port);
}

/// Worker `rank` of `size` on this machine.
inline kernels::WorkerPlace place_of(int64_t rank, int64_t size, int port) {
  return {.rank = rank,
          .size = size,
          .local_rank = rank,
          .local_size = size,
          .address = "127.0.0.1",
          .port = port};
}

/// The variables of such a worker as torchrun sets them.
inline std::map<std::string, std::string> torchrun(int64_t rank, int64_t size, int port) {
  return {{"RANK", std::to_string(rank)},       {"WORLD_SIZE", std::to_string(size)},
          {"LOCAL_RANK", std::to_string(rank)}, {"LOCAL_WORLD_SIZE", std::to_string(size)},
          {"MASTER_ADDR", "127.0.0.1"},         {"MASTER_PORT", std::to_string(port)}};
}

/// Runs `work` in `size` processes at once and returns each one's status: what it returned, 99
/// where it threw, or 128 + the signal that ended it.
inline std::vector<int> in_workers(int64_t size, const std::function<int(int64_t rank)>& work) {
  std::fflush(nullptr);
  std::vector<pid_t> children;
  for (int64_t rank = 0; rank < size; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) {
      int status = 99;
      try {
        status = work(rank);
      } catch (const std::exception& e) {
        std::fprintf(stderr, "worker %d: %s\n", static_cast<int>(rank), e.what());
      }
      std::fflush(nullptr);
      ::_exit(status);
    }
    children.push_back(child);
  }
  std::vector<int> statuses;
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    statuses.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
  }
  return statuses;
}

}  // namespace headroom::testing
