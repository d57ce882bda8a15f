// Memory of the harness's device that the host can't touch: on a machine with a GPU a pointer to
// the device's memory means nothing to the host, and what reads through it ends there and then.
// (CUDA C++ Programming Guide, "Device Memory": cudaMalloc's memory is accessed by kernels and
// copies alone.)
#pragma once

#include <cstddef>

namespace simt {

/// While one lives, memory of the device is there for kernels, copies and products only: any other
/// access is a SIGSEGV.
class HostKeepsOut {
 public:
  HostKeepsOut();
  ~HostKeepsOut();
  HostKeepsOut(const HostKeepsOut&) = delete;
  HostKeepsOut& operator=(const HostKeepsOut&) = delete;
};

/// While one lives, what touches the device's memory is the device at work.
class DeviceAtWork {
 public:
  DeviceAtWork();
  ~DeviceAtWork();
  DeviceAtWork(const DeviceAtWork&) = delete;
  DeviceAtWork& operator=(const DeviceAtWork&) = delete;
};

/// Whole pages, of at least so many bytes; nullptr where there are none.
void* take_pages(size_t bytes);
void give_back_pages(void* pages);
/// Whether the device at work can have touched them since it began.
bool are_open(const void* pages);

}  // namespace simt
