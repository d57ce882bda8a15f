// Two accesses race when one writes, their threads differ, and no barrier orders them: CUDA C++
// Programming Guide, "Synchronization Functions" (__syncthreads, __syncwarp order memory; shuffles
// and votes do not).
#include "tests/simt/shared_memory.h"

#include <fmt/format.h>

#include <cstring>

namespace simt {

namespace {

constexpr int kWarp = 32;

bool same_warp(const Moment& a, const Moment& b) { return a.thread / kWarp == b.thread / kWarp; }

/// Whether nothing orders an earlier access before one now.
bool races(const Moment& earlier, const Moment& now) {
  if (earlier.thread < 0 || earlier.thread == now.thread ||
      earlier.block_barriers < now.block_barriers) {
    return false;
  }
  return !same_warp(earlier, now) || earlier.warp_barriers >= now.warp_barriers;
}

std::string race(const char* does, size_t offset, const char* did, const Moment& earlier) {
  return fmt::format(
      "data race: {} shared memory at offset {}, which thread {} {} since the barrier", does,
      offset, earlier.thread, did);
}

}  // namespace

void SharedMemory::begin(size_t bytes) {
  bytes_.assign(bytes, std::byte{0xff});
  notes_.assign(bytes, Byte());
}

std::string SharedMemory::outside(int offset, size_t bytes) const {
  if (offset >= 0 && static_cast<size_t>(offset) + bytes <= bytes_.size()) {
    return {};
  }
  return fmt::format("{} bytes at offset {} of {} bytes of shared memory", bytes, offset,
                     bytes_.size());
}

std::string SharedMemory::read(int offset, size_t bytes, void* to, const Moment& now) {
  if (std::string wrong = outside(offset, bytes); !wrong.empty()) {
    return "out of bounds: reads " + wrong;
  }
  const auto first = static_cast<size_t>(offset);
  for (size_t i = first; i < first + bytes; ++i) {
    Byte& byte = notes_[i];
    if (!byte.written) {
      return fmt::format("uninitialised: reads shared memory at offset {}, which nobody wrote", i);
    }
    if (races(byte.writer, now)) {
      return race("reads", i, "wrote", byte.writer);
    }
    if (byte.reader.thread != now.thread) {
      if (byte.reader.thread < 0 || same_warp(byte.reader, now)) {
        byte.same_warp = byte.reader;
      } else {
        byte.other_warp = byte.reader;
        byte.same_warp = Moment();
      }
    }
    byte.reader = now;
  }
  std::memcpy(to, bytes_.data() + first, bytes);
  return {};
}

std::string SharedMemory::write(int offset, size_t bytes, const void* from, const Moment& now) {
  if (std::string wrong = outside(offset, bytes); !wrong.empty()) {
    return "out of bounds: writes " + wrong;
  }
  const auto first = static_cast<size_t>(offset);
  for (size_t i = first; i < first + bytes; ++i) {
    Byte& byte = notes_[i];
    if (races(byte.writer, now)) {
      return race("writes", i, "wrote", byte.writer);
    }
    for (const Moment& reader : {byte.reader, byte.same_warp, byte.other_warp}) {
      if (races(reader, now)) {
        return race("writes", i, "read", reader);
      }
    }
    byte.written = true;
    byte.writer = now;
  }
  std::memcpy(bytes_.data() + first, from, bytes);
  return {};
}

}  // namespace simt
