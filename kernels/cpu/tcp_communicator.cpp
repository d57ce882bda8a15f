// A star of TCP connections with worker 0 in its middle. What travels is small: the gradients of
// workers on GPUs go by NCCL.
#include "kernels/cpu/tcp_communicator.h"

#include <poll.h>

#include <cstdlib>
#include <utility>
#include <vector>

#include "kernels/cpu/tcp_meeting.h"
#include "tensor/check.h"

namespace headroom::kernels::cpu {

namespace {

/// What every message begins with: numbers, the status with which a worker ends all, or a farewell.
enum class Kind : int64_t { numbers, abort, farewell };
struct Header {
  Kind kind;
  int64_t value;  // bytes that follow, or the status
};

class Tcp final : public Communicator {
 public:
  Tcp(WorkerPlace place, std::chrono::milliseconds patience) : place_(std::move(place)) {
    for (Socket& socket : meet(place_, patience)) {
      peers_.push_back({.socket = std::move(socket)});
    }
  }
  /// Waits until the others have come to their end too, as MPI_Finalize does.
  ~Tcp() override {
    for (const Peer& peer : peers_) {
      say(peer, Kind::farewell, 0);
    }
    try {
      while (look(-1)) {
      }
    } catch (const Error&) {  // who dies now harms nobody any more
    }
  }
  Tcp(const Tcp&) = delete;
  Tcp& operator=(const Tcp&) = delete;

  int64_t rank() const override { return place_.rank; }
  int64_t size() const override { return place_.size; }
  int64_t local_rank() const override { return place_.local_rank; }
  int64_t local_size() const override { return place_.local_size; }

  void begin_sum(const Tensor& x) override {
    check(x.dtype() == DType::f32 || x.dtype() == DType::f64,
          "[workers] sums are of f32 or f64, not {}", name_of(x.dtype()));
    pending_.push_back(x);
  }
  void progress() override { look(0); }
  void finish() override {
    for (const Tensor& x : std::exchange(pending_, {})) {
      if (rank() > 0) {
        send(peers_[0], x);
        receive(peers_[0], x);
        continue;
      }
      for (Peer& peer : peers_) {
        if (peer.socket.open()) {
          add(peer, x);
        }
      }
      send_to_all_but(0, x);
    }
  }
  void broadcast(const Tensor& x, int64_t from) override {
    finish();
    if (rank() == from) {
      send_to_all_but(0, x);
    } else if (rank() > 0) {
      receive(peers_[0], x);
    } else {
      receive(peers_[static_cast<size_t>(from)], x);
      send_to_all_but(from, x);
    }
  }

  [[noreturn]] void abort(int status) override {
    for (const Peer& peer : peers_) {
      say(peer, Kind::abort, status);
    }
    std::_Exit(status);
  }

 private:
  /// The other end of a connection: to worker 0 the worker of the same index, to the others
  /// worker 0. Worker 0's own place holds none.
  struct Peer {
    Socket socket;
    bool spoke = false;  // a message of numbers is there to be read
    bool left = false;   // it has come to its end
  };

  int64_t rank_of(const Peer& peer) const { return rank() > 0 ? 0 : &peer - peers_.data(); }

  static bool say(const Peer& peer, Kind kind, int64_t value) {
    const Header header{kind, value};
    return peer.socket.open() && peer.socket.send(&header, sizeof header);
  }

  void send(Peer& peer, const Tensor& x) {
    const bool sent = say(peer, Kind::numbers, static_cast<int64_t>(x.nbytes())) &&
                      peer.socket.send(x.raw(), x.nbytes());
    if (!sent) {
      look(0);  // it may have said why
      throw_ended(peer);
    }
  }
  void send_to_all_but(int64_t origin, const Tensor& x) {
    for (Peer& peer : peers_) {
      if (peer.socket.open() && (rank() > 0 || rank_of(peer) != origin)) {
        send(peer, x);
      }
    }
  }
  void receive(Peer& peer, const Tensor& x) {
    while (!peer.spoke) {
      check(!peer.left, "[workers] worker {} has come to its end, but this one waits for it",
            rank_of(peer));
      look(-1);
    }
    peer.spoke = false;
    Header header{};
    const bool whole = peer.socket.receive(&header, sizeof header);
    check(!whole || header.value == static_cast<int64_t>(x.nbytes()),
          "[workers] worker {} sent {} bytes where this one expects {}", rank_of(peer),
          header.value, x.nbytes());
    Tensor memory = x;
    if (!whole || !peer.socket.receive(memory.raw(), x.nbytes())) {
      throw_ended(peer);
    }
  }
  /// x += the peer's, in the order of the workers: all get the same bits.
  void add(Peer& peer, const Tensor& x) {
    const Tensor other = Tensor::empty(x.shape(), x.dtype(), kCpu);
    receive(peer, other);
    const auto add_numbers = [&]<class T>(T*) {
      Tensor sum = x;
      const T* from = other.data<T>();
      T* to = sum.data<T>();
      for (int64_t i = 0; i < x.numel(); ++i) {
        to[i] += from[i];
      }
    };
    x.dtype() == DType::f64 ? add_numbers(static_cast<double*>(nullptr))
                            : add_numbers(static_cast<float*>(nullptr));
  }

  [[noreturn]] void throw_ended(const Peer& peer) const {
    throw Error(
        fmt::format("[workers] worker {} has ended without a word: was it killed?", rank_of(peer)));
  }

  /// Takes notice of what has come within so many milliseconds (-1: waits for something). False
  /// where no more can come.
  bool look(int milliseconds) {
    std::vector<pollfd> watched;
    std::vector<Peer*> owners;
    for (Peer& peer : peers_) {
      if (peer.socket.open() && !peer.spoke && !peer.left) {
        watched.push_back({.fd = peer.socket.handle(), .events = POLLIN, .revents = 0});
        owners.push_back(&peer);
      }
    }
    if (watched.empty()) {
      return false;
    }
    poll(watched.data(), watched.size(), milliseconds);
    for (size_t i = 0; i < watched.size(); ++i) {
      if (watched[i].revents != 0) {
        hear(*owners[i]);
      }
    }
    return true;
  }
  void hear(Peer& peer) {
    Header header{};
    const ssize_t got = recv(peer.socket.handle(), &header, sizeof header, MSG_PEEK | MSG_WAITALL);
    if (got != static_cast<ssize_t>(sizeof header)) {
      throw_ended(peer);
    }
    switch (header.kind) {
      case Kind::numbers:
        peer.spoke = true;
        break;
      case Kind::abort:
        abort(static_cast<int>(header.value));
      case Kind::farewell:
        peer.left = true;
        break;
      default:  // the rest of numbers that were too many
        throw Error(fmt::format("[workers] worker {} sent what is no message", rank_of(peer)));
    }
  }

  const WorkerPlace place_;
  std::vector<Peer> peers_;
  std::vector<Tensor> pending_;
};

}  // namespace

std::unique_ptr<Communicator> make_tcp_communicator(const WorkerPlace& place,
                                                    std::chrono::milliseconds patience) {
  return std::make_unique<Tcp>(place, patience);
}

}  // namespace headroom::kernels::cpu
