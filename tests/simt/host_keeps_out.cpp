#include "tests/simt/host_keeps_out.h"

#include <sys/mman.h>

#include <map>

namespace simt {
namespace {

std::map<void*, size_t>& pages() {
  static std::map<void*, size_t> all;
  return all;
}

int keeping_out = 0, at_work = 0;

void allow(int access) {
  for (const auto& [first, bytes] : pages()) {
    mprotect(first, bytes, access);
  }
}

}  // namespace

HostKeepsOut::HostKeepsOut() {
  if (++keeping_out == 1) {
    allow(PROT_NONE);
  }
}
HostKeepsOut::~HostKeepsOut() {
  if (--keeping_out == 0) {
    allow(PROT_READ | PROT_WRITE);
  }
}

DeviceAtWork::DeviceAtWork() {
  if (++at_work == 1 && keeping_out > 0) {
    allow(PROT_READ | PROT_WRITE);
  }
}
DeviceAtWork::~DeviceAtWork() {
  if (--at_work == 0 && keeping_out > 0) {
    allow(PROT_NONE);
  }
}

void* take_pages(size_t bytes) {
  void* const first =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (first == MAP_FAILED) {
    return nullptr;
  }
  pages()[first] = bytes;
  return first;
}

void give_back_pages(void* first) {
  const auto found = pages().find(first);
  munmap(first, found->second);
  pages().erase(found);
}

}  // namespace simt
