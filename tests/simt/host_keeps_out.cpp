// Memory is opened when the device at work first touches it, piece by piece, and closed when it
// rests: a launch that opened all there is would take longer than its kernel.
#include "tests/simt/host_keeps_out.h"

#include <sys/mman.h>

#include <algorithm>
#include <csignal>
#include <map>
#include <utility>
#include <vector>

namespace simt {
namespace {

std::map<void*, size_t>& pages() {
  static std::map<void*, size_t> all;
  return all;
}

int keeping_out = 0, at_work = 0;
std::vector<std::pair<void*, size_t>> opened;
struct sigaction usual_handler;

void allow(int access) {
  for (const auto& [first, bytes] : pages()) {
    mprotect(first, bytes, access);
  }
}

/// The piece of memory that holds an address is opened, if it is the device that touches it; or
/// else what touched it does so once more, and ends the program as it would any.
void open_or_end(int signal, siginfo_t* fault, void* /*context*/) {
  const auto next = pages().upper_bound(fault->si_addr);
  if (at_work > 0 && next != pages().begin()) {
    const auto& [first, bytes] = *std::prev(next);
    if (fault->si_addr < static_cast<std::byte*>(first) + bytes) {
      mprotect(first, bytes, PROT_READ | PROT_WRITE);
      opened.emplace_back(first, bytes);
      return;
    }
  }
  sigaction(signal, &usual_handler, nullptr);
}

void close_opened() {
  for (const auto& [first, bytes] : opened) {
    mprotect(first, bytes, PROT_NONE);
  }
  opened.clear();
}

}  // namespace

HostKeepsOut::HostKeepsOut() {
  if (++keeping_out == 1) {
    allow(PROT_NONE);
    struct sigaction handler {};
    handler.sa_sigaction = open_or_end;
    handler.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &handler, &usual_handler);
  }
}
HostKeepsOut::~HostKeepsOut() {
  if (--keeping_out == 0) {
    sigaction(SIGSEGV, &usual_handler, nullptr);
    allow(PROT_READ | PROT_WRITE);
    opened.clear();
  }
}

DeviceAtWork::DeviceAtWork() { ++at_work; }
DeviceAtWork::~DeviceAtWork() {
  if (--at_work == 0) {
    close_opened();
  }
}

void* take_pages(size_t bytes) {
  void* const first =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (first == MAP_FAILED) {
    return nullptr;
  }
  pages()[first] = bytes;
  if (keeping_out > 0) {
    opened.emplace_back(first, bytes);  // by the device at work, which is who takes memory
  }
  return first;
}

bool are_open(const void* first) {
  return keeping_out == 0 || std::any_of(opened.begin(), opened.end(),
                                         [&](const auto& open) { return open.first == first; });
}

void give_back_pages(void* first) {
  const auto found = pages().find(first);
  std::erase(opened, std::pair<void*, size_t>(*found));
  munmap(first, found->second);
  pages().erase(found);
}

}  // namespace simt
