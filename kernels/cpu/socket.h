// A TCP socket as a value that closes itself, and what its host's name stands for.
#pragma once

#include <netdb.h>
#include <sys/socket.h>

#include <cstddef>
#include <memory>
#include <string>

namespace headroom::kernels::cpu {

class Socket {
 public:
  explicit Socket(int handle = -1) : handle_(handle) {}
  ~Socket();
  Socket(Socket&& other) noexcept;
  Socket& operator=(Socket&& other) noexcept;
  int handle() const { return handle_; }
  bool open() const { return handle_ >= 0; }

  void set(int level, int option, int value) const;
  /// What is awaited for longer counts as gone; 0 for as long as it takes.
  void set_patience(int seconds) const;
  /// Has the system notice within two minutes that the other machine went away, though hours pass
  /// without a byte (RFC 1122, section 4.2.3.6), and send small messages at once.
  void keep() const;
  /// All the bytes; false when the other end is gone.
  bool send(const void* data, size_t bytes) const;
  bool receive(void* data, size_t bytes) const;

 private:
  int handle_;
};

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

/// The addresses to listen at or to reach; null with `problem` set where there are none. An empty
/// `host` is every address of this machine, of the `family` given.
Addresses look_up(const std::string& host, int port, int family, std::string& problem);

}  // namespace headroom::kernels::cpu
