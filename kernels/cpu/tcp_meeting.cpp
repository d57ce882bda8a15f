#include "kernels/cpu/tcp_meeting.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "tensor/check.h"

namespace headroom::kernels::cpu {

namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

/// What a connection begins with.
struct Greeting {
  char program[8] = {'h', 'e', 'a', 'd', 'r', 'o', 'o', 'm'};
  int64_t rank = 0, size = 0;
};

/// What worker 0 answers once all have come.
constexpr char kAllAreHere = '!';

class Meeting {
 public:
  Meeting(const WorkerPlace& place, std::chrono::milliseconds patience)
      : place_(place), patience_(patience), deadline_(Clock::now() + patience) {}

  /// Worker 0: takes the others' connections until all are there.
  std::vector<Socket> gather() {
    others_.resize(static_cast<size_t>(place_.size));
    const Socket listener = listen_at_port();
    for (int64_t missing = place_.size - 1; missing > 0;) {
      const int ready = wait_for(listener, deadline_);
      if (ready == 0) {
        throw_missing();
      }
      if (ready < 0) {  // a signal came
        continue;
      }
      Socket guest(accept4(listener.handle(), nullptr, nullptr, SOCK_CLOEXEC));
      missing -= guest.open() && admit(std::move(guest)) ? 1 : 0;
    }
    for (const Socket& other : others_) {
      if (other.open()) {
        other.send(&kAllAreHere, 1);  // who is gone again is missed soon enough
      }
    }
    return std::move(others_);
  }

  /// The others: try until worker 0 listens, and wait until it has found all.
  std::vector<Socket> join() {
    const Socket& first = others_.emplace_back(reach());
    Greeting greeting;
    greeting.rank = place_.rank;
    greeting.size = place_.size;
    first.send(&greeting, sizeof greeting);
    // Worker 0 gives up before this one does, and says why.
    check_input(wait_for(first, deadline_ + 5s) != 0,
                "after {} seconds worker 0, at {}, still waits for other workers", seconds(),
                meeting_place());
    char answer = 0;
    check(first.receive(&answer, 1) && answer == kAllAreHere,
          "[workers] worker 0, at {}, ended before all had come", meeting_place());
    return std::move(others_);
  }

 private:
  std::string meeting_place() const { return fmt::format("{}:{}", place_.address, place_.port); }
  double seconds() const { return static_cast<double>(patience_.count()) / 1e3; }

  static int wait_for(const Socket& socket, Clock::time_point deadline) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    pollfd watched{.fd = socket.handle(), .events = POLLIN, .revents = 0};
    return left <= 0ms ? 0 : poll(&watched, 1, static_cast<int>(left.count()));
  }

  Addresses look_up_first() const {
    std::string problem;
    Addresses found = look_up(place_.address, place_.port, AF_UNSPEC, problem);
    check_input(found != nullptr, "MASTER_ADDR is '{}', which is no machine's name or address: {}",
                place_.address, problem);
    return found;
  }

  Socket listen_at_port() const {
    std::string problem;
    const Addresses own = look_up("", place_.port, look_up_first()->ai_family, problem);
    check(own != nullptr, "[workers] this machine has no address to listen at: {}", problem);
    Socket listener(socket(own->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    listener.set(SOL_SOCKET, SO_REUSEADDR, 1);
    const bool listening = bind(listener.handle(), own->ai_addr, own->ai_addrlen) == 0 &&
                           listen(listener.handle(), static_cast<int>(place_.size)) == 0;
    check_input(listening,
                "worker 0 can't listen at port {}, the one after MASTER_PORT: {}; choose another "
                "MASTER_PORT",
                place_.port, std::strerror(errno));
    return listener;
  }

  /// False for a stranger, who says nothing or something else.
  bool admit(Socket guest) {
    guest.set_patience(1);
    Greeting greeting;
    std::memset(greeting.program, 0, sizeof greeting.program);
    if (!guest.receive(&greeting, sizeof greeting) ||
        std::memcmp(greeting.program, Greeting().program, sizeof greeting.program) != 0) {
      return false;
    }
    check_input(greeting.size == place_.size,
                "WORLD_SIZE is {} in worker 0, but {} in worker {}, which came to {}", place_.size,
                greeting.size, greeting.rank, meeting_place());
    Socket& place = others_.at(static_cast<size_t>(greeting.rank));
    check_input(greeting.rank > 0 && !place.open(),
                "two workers came to {} as worker {}: each needs a RANK of its own",
                meeting_place(), greeting.rank);
    guest.set_patience(0);
    guest.keep();
    place = std::move(guest);
    return true;
  }

  [[noreturn]] void throw_missing() const {
    std::vector<int64_t> missing;
    for (int64_t i = 1; i < place_.size; ++i) {
      if (!others_[static_cast<size_t>(i)].open()) {
        missing.push_back(i);
      }
    }
    throw InputError(fmt::format(
        "after {} seconds at {}, the port after MASTER_PORT, {} of {} workers have not come: {}",
        seconds(), meeting_place(), missing.size(), place_.size, fmt::join(missing, ", ")));
  }

  Socket reach() const {
    const Addresses found = look_up_first();
    while (true) {
      std::string problem;
      if (Socket reached = try_to_reach(*found, problem); reached.open()) {
        reached.keep();
        return reached;
      }
      check_input(Clock::now() < deadline_,
                  "after {} seconds worker 0 can't be reached at {}, the port after MASTER_PORT: "
                  "{}",
                  seconds(), meeting_place(), problem);
      std::this_thread::sleep_for(100ms);
    }
  }

  /// Closed, with `problem` set, where none of the addresses answers.
  static Socket try_to_reach(const addrinfo& first, std::string& problem) {
    for (const addrinfo* each = &first; each != nullptr; each = each->ai_next) {
      Socket guest(socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
      if (connect(guest.handle(), each->ai_addr, each->ai_addrlen) == 0) {
        return guest;
      }
      problem = std::strerror(errno);
    }
    return Socket();
  }

  const WorkerPlace& place_;
  const std::chrono::milliseconds patience_;
  const Clock::time_point deadline_;
  std::vector<Socket> others_;
};

}  // namespace

std::vector<Socket> meet(const WorkerPlace& place, std::chrono::milliseconds patience) {
  Meeting meeting(place, patience);
  return place.rank == 0 ? meeting.gather() : meeting.join();
}

}  // namespace headroom::kernels::cpu
