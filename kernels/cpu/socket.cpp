#include "kernels/cpu/socket.h"

#include <netinet/tcp.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace headroom::kernels::cpu {

Socket::~Socket() {
  if (handle_ >= 0) {
    close(handle_);
  }
}

Socket::Socket(Socket&& other) noexcept : handle_(std::exchange(other.handle_, -1)) {}

Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(handle_, other.handle_);
  return *this;
}

void Socket::set(int level, int option, int value) const {
  setsockopt(handle_, level, option, &value, sizeof value);
}

void Socket::set_patience(int seconds) const {
  const timeval time{.tv_sec = seconds, .tv_usec = 0};
  setsockopt(handle_, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
}

void Socket::keep() const {
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 60);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 10);
  set(IPPROTO_TCP, TCP_KEEPCNT, 6);
  set(IPPROTO_TCP, TCP_NODELAY, 1);
}

namespace {

/// Calls move(next, left), which returns how many bytes it moved, until all have been; false when
/// the other end is gone.
template <class Byte, class Move>
bool move_all(Byte* next, size_t left, const Move& move) {
  while (left > 0) {
    const ssize_t moved = move(next, left);
    if (moved < 0 && errno == EINTR) {
      continue;
    }
    if (moved <= 0) {
      return false;
    }
    next += moved;
    left -= static_cast<size_t>(moved);
  }
  return true;
}

}  // namespace

bool Socket::send(const void* data, size_t bytes) const {
  return move_all(static_cast<const char*>(data), bytes, [this](const char* next, size_t left) {
    return ::send(handle_, next, left, MSG_NOSIGNAL);
  });
}

bool Socket::receive(void* data, size_t bytes) const {
  return move_all(static_cast<char*>(data), bytes,
                  [this](char* next, size_t left) { return recv(handle_, next, left, 0); });
}

Addresses look_up(const std::string& host, int port, int family, std::string& problem) {
  addrinfo hints{};
  hints.ai_family = family;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = host.empty() ? AI_PASSIVE : 0;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.empty() ? nullptr : host.c_str(), std::to_string(port).c_str(),
                                &hints, &found);
  problem = error == 0 ? "" : gai_strerror(error);
  return Addresses(error == 0 ? found : nullptr);
}

}  // namespace headroom::kernels::cpu
